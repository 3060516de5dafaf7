package get_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// lines records the targets of requests, byte for byte. It redirects /start/N to the Nth location.
type lines struct {
	port      int
	locations []string

	mu   sync.Mutex
	seen []string
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

var _ = Describe("the path and the query of a URL", func() {
	client := func() *get.Client { return newClient(shortLimits(), newGate(egress.Config{}), get.Deps{}) }

	DescribeTable("are requested as written, whether the URL is annotated or a Location",
		func(ctx SpecContext, written, requested string) {
			l := recordLines(written)
			annotated, wrong := weburl.Canonical(urlOf(l.port, written), "https")
			Expect(wrong).To(BeEmpty())
			for _, u := range []string{annotated, urlOf(l.port, "/start/0")} {
				Expect(client().Do(ctx, get.Request{URL: u})).To(HaveField("Body", BeEquivalentTo("ok")))
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

	DescribeTable("of a Location are escaped only where a request line needs it",
		func(ctx SpecContext, location, requested string) {
			l := recordLines(location)
			Expect(client().Do(ctx, get.Request{URL: urlOf(l.port, "/start/0")})).Error().NotTo(HaveOccurred())
			Expect(l.targets()).To(ConsistOf(requested))
		},
		Entry("a space", "/x y?scope=openid profile", "/x%20y?scope=openid%20profile"),
		Entry("a tab", "/x\ty", "/x%09y"),
		Entry("Latin-1", "/\xe4", "/%E4"),
		Entry("a lone percent sign", "/100%/{x}?50%", "/100%/{x}?50%"),
		Entry("dot segments", "../{a}/./b%2F../c", "/{a}/b%2F../c"),
		Entry("a presigned URL", "/x?sig="+strings.Repeat("s", 8000), "/x?sig="+strings.Repeat("s", 8000)),
	)

	It("are those of curl for any Location", func(ctx SpecContext) {
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
		c := client()
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

var _ = Describe("the sentence about a response", func() {
	DescribeTable("names the cause only if it is known",
		func(ctx SpecContext, response, sentence string) {
			client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
			url := urlOf(serve(say("HTTP/1.1 "+response+"\r\n"+length(0))), "/")
			Expect(failed(client.Do(ctx, get.Request{URL: url}))).To(MatchError(sentence))
		},
		Entry(nil, "401 No", "data.example.com responded with 401; no credential is configured for this URL and namespace"),
		Entry(nil, "403 No", "data.example.com responded with 403; no credential is configured for this URL and namespace, "+
			"or the server refuses the User-Agent, which a header entry can change"),
		Entry(nil, "403 Limit\r\nRetry-After: 20",
			"data.example.com limits the rate of requests: it responded with 403 and Retry-After"),
		Entry(nil, "206 Partial", "data.example.com responded with 206 (partial content) although no part was requested; "+
			"use a URL that responds with 200"),
		Entry(nil, "302 Found\r\nLocation: ftp://data.example.com/", "redirect 1 of data.example.com leads to a URL that is "+
			"not allowed: the scheme must be http or https; use a URL without that redirect"),
		Entry(nil, "302 Found\r\nLocation: //"+secret+"@data.example.com/", "redirect 1 of data.example.com leads to a URL "+
			"that is not allowed: the URL or its host name is not valid; use a URL without that redirect"),
		Entry(nil, "302 Found\r\nLocation: /"+strings.Repeat("x", 9000), "data.example.com sent an unusable response: a "+
			"redirect whose Location is missing, has no valid host or is longer than 8,192 characters; use a URL without that "+
			"redirect"),
		Entry(nil, "302 Found\r\nLocation: http://data_1.example.com/", "data.example.com sent an unusable response: a "+
			"redirect whose Location is missing, has no valid host or is longer than 8,192 characters; use a URL without that "+
			"redirect"),
	)

	It("does not take a User-Agent for a credential, and hides the values of credentials in hops", func(ctx SpecContext) {
		port := serve(say("HTTP/1.1 403 No\r\nServer: a\r\n" + length(0)))
		cfg := shortLimits()
		cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf(
			"- {host: %s, namespaces: [team-a], schemes: [http], ports: [%d], headers: {user-agent: b}}\n"+
				"- {host: %s, namespaces: [team-b], schemes: [http], ports: [%d], headers: {X-Key: %s}}\n",
			host, port, host, port, secret))
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		var hops []string
		hopping := get.WithHops(ctx, func(sent, received string) { hops = append(hops, sent, received) })
		credential := func(namespace, path string) string {
			return failed(client.Do(hopping, get.Request{URL: urlOf(port, path), Namespace: namespace})).Credential
		}
		Expect(credential("team-a", "/{x}?q")).To(BeEmpty())
		Expect(credential("team-b", "/")).NotTo(BeEmpty())
		Expect(hops).To(Equal([]string{
			"GET " + urlOf(port, "/{x}?…") + "; Accept: */*; Accept-Encoding: identity; User-Agent: (hidden)",
			"403; Content-Length: 0; Server: a",
			"GET " + urlOf(port, "/") + "; Accept: */*; Accept-Encoding: identity; " +
				"User-Agent: curl-me-that/v1.2.3 (+https://github.com/kv8s/curl-me-that); X-Key: (hidden)",
			"403; Content-Length: 0; Server: a",
		}))
	})
})
