package get_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// lines records the targets of requests, byte for byte. It redirects /start/N to the Nth location.
type lines struct {
	port      int
	locations []string

	mu   sync.Mutex
	seen []string
}

// targets returns the last target after each start, empty if there is none, and forgets them.
func (l *lines) targets() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make([]string, len(l.locations))
	n := 0
	for _, line := range l.seen {
		if _, err := fmt.Sscanf(line, "/start/%d", &n); err != nil {
			found[n] = line
		}
	}
	l.seen = nil
	return found
}

func recordLines(locations ...string) *lines {
	GinkgoHelper()
	l := &lines{locations: locations}
	l.port = serve(func(_ context.Context, conn net.Conn) {
		reader := bufio.NewReaderSize(conn, 16<<10)
		line, _ := reader.ReadString('\n')
		for {
			if header, err := reader.ReadString('\n'); err != nil || header == "\r\n" {
				break
			}
		}
		line = strings.TrimSuffix(strings.TrimPrefix(line, "GET "), " HTTP/1.1\r\n")
		l.mu.Lock()
		l.seen = append(l.seen, line)
		l.mu.Unlock()
		var n int
		if _, err := fmt.Sscanf(line, "/start/%d", &n); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: "+l.locations[n]+"\r\n"+length(0))
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	})
	return l
}

// Presigned URLs sign the host as curl and browsers send it.
var _ = DescribeTable("the Host of a request is", func(ctx SpecContext, raw, want string) {
	ca := newAuthority()
	cfg.CABundle = writeFile("ca.pem", ca.pem())
	handle := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.note(r) })
	port := serveHTTP(handle)
	if strings.HasPrefix(raw, "https:") {
		port = secureServer(ca, host, nil, handle)
	}
	cfg.Proxy = "http://" + hostPort("127.0.0.1", serve(serveTunnels(port)))
	suitetest.Must(newClient().Do(ctx, get.Request{URL: raw}))
	Expect(seen.requests()).To(ConsistOf(HaveField("Host", want)))
},
	Entry("without the default port", "http://data.example.com:80/", host),
	Entry("without that of https", "https://data.example.com:443/", host),
	Entry("without it in the absolute form, after a double slash", "https://data.example.com:443//x/{y}", host),
	Entry("with another port", "http://data.example.com:8080/", "data.example.com:8080"),
	Entry("with the default port of another scheme", "https://data.example.com:80/", "data.example.com:80"),
	Entry("an address without the port", "http://[::ffff:127.0.0.1]:80/", "127.0.0.1"),
)

var _ = Describe("the path and the query of a URL", func() {
	DescribeTable("are requested as written, whether the URL is annotated or a Location",
		func(ctx SpecContext, written, requested string) {
			l := recordLines(written)
			annotated, wrong := weburl.Canonical(urlOf(l.port, written), "https")
			Expect(wrong).To(BeEmpty())
			for _, u := range []string{annotated, urlOf(l.port, "/start/0")} {
				Expect(newClient().Do(ctx, get.Request{URL: u})).To(HaveField("Body", BeEquivalentTo("ok")))
				Expect(l.targets()).To(ConsistOf(requested))
			}
		},
		Entry(nil, "/group%2Fproject/{id}.json", "/group%2Fproject/{id}.json"),
		Entry(nil, "/a%2fb%41/[x];y=1/+?q={a}|b&c=%2F", "/a%2fb%41/[x];y=1/+?q={a}|b&c=%2F"),
		Entry(nil, "/`\"<x>\"/^|\\y", "/`\"<x>\"/^|\\y"),
		Entry(nil, "/ä/%C3%A4?ö=é", "/%C3%A4/%C3%A4?%C3%B6=%C3%A9"),
		Entry(nil, "/a//b/?", "/a//b/?"),
		Entry(nil, "/{x}#fragment", "/{x}"),
	)

	It("of a Location may have a space or the length of a presigned URL", func(ctx SpecContext) {
		presigned := "/x?sig=" + strings.Repeat("s", 8000)
		l := recordLines("/x?scope=openid profile", presigned)
		for n := range l.locations {
			suitetest.Must(newClient().Do(ctx, get.Request{URL: urlOf(l.port, fmt.Sprintf("/start/%d", n))}))
		}
		Expect(l.targets()).To(Equal([]string{"/x?scope=openid%20profile", presigned}))
	})

	It("are the same as those of curl for any Location", func(ctx SpecContext) {
		curl, err := exec.LookPath("curl")
		if err != nil {
			Skip("without curl")
		}
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		pieces := []string{
			"a", "B", "0", "/", "/", "//", ".", "..", "/../", "/./", "?", "#", "&", "=", "%2F", "%2e", "%", "%z", "{id}",
			"[", "]", "|", `"`, "<", ">", "^", "`", `\`, ";", ":", "@", "!", "$",
			"'", "(", "*", "+", ",", "~", "-", "_", "ä", "\xff", "語",
		}
		locations := []string{"?q", "x", "../x", "./", "x:y"}
		for len(locations) < 300 {
			location := "/"
			for range 1 + random.IntN(8) {
				location += pieces[random.IntN(len(pieces))]
			}
			// Two slashes begin another host. After dot segments, package url joins them, or they need the absolute form.
			if !strings.HasPrefix(location, "//") && !(strings.Contains(location, "//") && strings.Contains(location, "/.")) {
				locations = append(locations, location)
			}
		}
		l := recordLines(locations...)
		args := []string{"-sgL", "--noproxy", "*", "--resolve", fmt.Sprintf("%s:%d:127.0.0.1", host, l.port)}
		c := newClient()
		for n := range locations {
			args = append(args, urlOf(l.port, fmt.Sprintf("/start/%d", n)))
			_, _ = c.Do(ctx, get.Request{URL: urlOf(l.port, fmt.Sprintf("/start/%d", n))})
		}
		ours := l.targets()
		_ = exec.CommandContext(ctx, curl, args...).Run() // it may fail for the last one
		escapes := regexp.MustCompile(`%[0-9a-f]{2}`)
		same := func(target string) string {
			return escapes.ReplaceAllStringFunc(strings.TrimSuffix(target, "?"), strings.ToUpper)
		}
		for n, theirs := range l.targets() {
			// curl omits an empty query, and writes its own escapes in lower case.
			Expect(same(ours[n])).To(Equal(same(theirs)), "Location %q", locations[n])
		}
	})
})
