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

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

const (
	date     = "Date: Sun, 06 Nov 1994 09:49:37 GMT\r\n"
	modified = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
	older    = "Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT\r\n"
)

// dialogue serves raw responses: one by path and by whether the request is conditional. It records
// the requests as "/path" or "/path?" if they are conditional.
type dialogue struct {
	port int
	seen chan string
}

// respond is the response to a path, such as "/a", or to a conditional GET of it, such as "/a?".
type respond map[string]string

// whole is a 200 with headers and a body.
func whole(headers, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", headers, len(body), body)
}

// empty is a response without a body.
func empty(status int, headers string) string {
	return fmt.Sprintf("HTTP/1.1 %d Whatever\r\n%sContent-Length: 0\r\n\r\n", status, headers)
}

func talk(response func(request string) string) *dialogue {
	d := &dialogue{seen: make(chan string, 100)}
	d.port = serve(func(_ context.Context, conn net.Conn) {
		for in := bufio.NewReader(conn); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			request := r.URL.Path
			if r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since") != "" {
				request += "?"
			}
			d.seen <- request
			if _, err := io.WriteString(conn, response(request)); err != nil {
				return
			}
		}
	})
	return d
}

// requests returns the requests since the last call.
func (d *dialogue) requests() string {
	var all []string
	for len(d.seen) > 0 {
		all = append(all, <-d.seen)
	}
	return strings.Join(all, " ")
}

// refresh fetches /a, then changes the responses and fetches it again with the validators of the first one.
func refresh(ctx context.Context, first, then respond) (get.Response, string) {
	GinkgoHelper()
	now := first
	d := talk(func(request string) string { //nolint:contextcheck // it ends with the spec
		if text, found := now[request]; found {
			return text
		}
		return now[strings.TrimSuffix(request, "?")]
	})
	client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{}) //nolint:contextcheck // it ends with the spec
	had := must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")}))
	d.requests()
	now = then
	r, err := client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: had.Validators})
	Expect(err).NotTo(HaveOccurred())
	return r, d.requests()
}

var _ = Describe("a conditional GET", func() {
	const v1, v2 = "ETag: \"v1\"\r\n", "ETag: \"v2\"\r\n"
	unchanged := func(given, confirmed string) (respond, respond) {
		return respond{"/a": whole(given, "old")}, respond{"/a?": empty(304, confirmed), "/a": whole(given, "new")}
	}

	// The requests of a refresh, which is conditional ("/a?") or not.
	const confirms, repeats, never = "/a?", "/a? /a", "/a"
	DescribeTable("after a body with validators keeps it only if a 304 is about it", func(ctx SpecContext,
		given, confirmed, want string,
	) {
		first, then := unchanged(given, confirmed)
		r, requests := refresh(ctx, first, then)
		Expect(requests).To(Equal(want))
		Expect(r.NotModified).To(Equal(want == confirms))
		Expect(r.Conditional()).To(Equal(want != never), "the next GET may be conditional again")
		if want != confirms {
			Expect(string(r.Body)).To(Equal("new"))
		}
	},
		Entry("with the same ETag", v1, v1, confirms),
		Entry("with the same ETag, now weak", v1, "ETag: W/\"v1\"\r\n", confirms),
		Entry("with the same weak ETag, now strong", "ETag: W/\"v1\"\r\n", v1, confirms),
		Entry("with the same ETag and another date", date+modified+v1, date+older+v1, confirms),
		Entry("with the same date", date+modified, date+modified, confirms),
		Entry("without validators", date+modified, "", confirms),
		Entry("with a date, if the body had only an ETag", v1, modified, confirms),
		Entry("with a malformed ETag, as the body had", date+modified+"ETag: v1\r\n", "ETag: v1\r\n", confirms),
		Entry("if Last-Modified cannot be compared with a Date", modified+v1, v1, confirms),

		Entry("with another ETag", v1, v2, repeats),
		Entry("with another ETag and the same date", date+modified+v1, date+modified+v2, repeats),
		Entry("with two ETags", v1, v1+v2, repeats),
		Entry("with a malformed ETag", v1, "ETag: v1\r\n", repeats),
		Entry("with another date", date+modified, date+older, repeats),
		Entry("with an ETag that the body did not have", date+modified, v2, repeats),

		Entry("a file as old as the response", modified+"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "", never),
		Entry("a file that is hardly older", modified+"Date: Sun, 06 Nov 1994 08:50:36 GMT\r\n", "", never),
		Entry("a file that is younger", modified+"Date: Sun, 06 Nov 1994 08:49:36 GMT\r\n", "", never),
		Entry("an ETag that may name the same second", v1+modified+"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "", never),
		Entry("no Date", modified, "", never),
		Entry("an invalid Date", modified+"Date: today\r\n", "", never),
		Entry("an invalid Last-Modified", date+"Last-Modified: yesterday\r\n", "", never),
		Entry("two dates that differ", date+modified+older, "", never),
		Entry("an ETag without its quotes", "ETag: v1\r\n", "", never),
		Entry("two ETags that differ", v1+v2, "", never),
		Entry("an ETag that is too long", "ETag: \""+strings.Repeat("v", 300)+"\"\r\n", "", never),
	)

	DescribeTable("is repeated without conditions if it is refused, and never made again",
		func(ctx SpecContext, status int) {
			first := respond{"/a": whole(v1, "old")}
			then := respond{"/a?": empty(status, ""), "/a": whole(v1, "new")}
			r, requests := refresh(ctx, first, then)
			Expect(requests).To(Equal("/a? /a"))
			Expect(string(r.Body)).To(Equal("new"))

			d := talk(func(string) string { return whole(v1, "newer") })
			client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
			unconditional := get.Validators{From: must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")})).From}
			for range 2 {
				next := must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: unconditional}))
				Expect(next.Validators).To(Equal(unconditional))
			}
			Expect(d.requests()).To(Equal("/a /a /a"))
			Expect(r.Conditional()).To(BeFalse())
			Expect(r.From).NotTo(BeEmpty())
		},
		Entry("with 412", 412), Entry("with 400", 400), Entry("with 403", 403), Entry("with 404", 404),
		Entry("with 416", 416), Entry("with 500", 500), Entry("with 501", 501),
	)

	It("fails after one more GET if the status has another reason, and is not repeated after 429, 503 or Retry-After",
		func(ctx SpecContext) {
			client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
			for response, want := range map[string]string{
				empty(500, ""):                    "/a /a? /a",
				empty(503, ""):                    "/a /a?",
				empty(429, ""):                    "/a /a?",
				empty(401, ""):                    "/a /a?",
				empty(403, "Retry-After: 20\r\n"): "/a /a?",
			} {
				now := whole(v1, "old")
				d := talk(func(string) string { return now })
				had := must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")}))
				now = response
				_ = errorOf(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: had.Validators}))
				Expect(d.requests()).To(Equal(want))
			}
		})

	It("is made only to the URL that gave the validators", func(ctx SpecContext) {
		to := func(path string) string { return empty(302, "Location: "+path+"\r\n") }
		given := date + modified
		r, requests := refresh(ctx, respond{"/a": to("/b"), "/b": whole(given, "b")},
			respond{"/a": to("/b"), "/b?": empty(304, "")})
		Expect(requests).To(Equal("/a /b?"))
		Expect(r.NotModified).To(BeTrue())

		By("not to another target of the redirect, whose file may be older")
		r, requests = refresh(ctx, respond{"/a": to("/b"), "/b": whole(given, "b")},
			respond{"/a": to("/c"), "/c?": empty(304, ""), "/c": whole(date+older, "c")})
		Expect(requests).To(Equal("/a /c"))
		Expect(string(r.Body)).To(Equal("c"))

		By("not to a redirect that has become a file, or the reverse")
		_, requests = refresh(ctx, respond{"/a": to("/b"), "/b": whole(given, "b")}, respond{"/a": whole(given, "a")})
		Expect(requests).To(Equal("/a"))
		_, requests = refresh(ctx, respond{"/a": whole(given, "a")},
			respond{"/a?": to("/b"), "/b": whole(given, "b")})
		Expect(requests).To(Equal("/a? /b"))

		By("not if only the query differs")
		_, requests = refresh(ctx, respond{"/a": to("/b?v=2"), "/b": whole(given, "b")},
			respond{"/a": to("/b?v=1"), "/b": whole(given, "b")})
		Expect(requests).To(Equal("/a /b"))
	})

	It("does not have invalid validators", func(ctx SpecContext) {
		d := talk(func(string) string { return whole(v1, "hello") })
		client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
		had := must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")})).Validators
		had.ETag, had.LastModified = "v1\r\nX: y", "yesterday"
		Expect(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: had})).To(HaveField("NotModified", false))
		Expect(d.requests()).To(Equal("/a /a"))
	})

	It("is the only reason to accept a 304", func(ctx SpecContext) {
		d := talk(func(string) string { return empty(304, "") })
		client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
		Expect(errorOf(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")})).StatusCode).To(Equal(304))
	})
})

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
			Expect(errorOf(client.Do(ctx, get.Request{URL: url}))).To(MatchError(sentence))
		},
		Entry(nil, "401 No", "data.example.com responded with 401; no credential is configured for this URL and namespace"),
		Entry(nil, "403 No", "data.example.com responded with 403; no credential is configured for this URL and namespace, "+
			"or the server rejects the User-Agent, which a header entry can change"),
		Entry(nil, "403 Limit\r\nRetry-After: 20",
			"data.example.com limits the rate of requests: it responded with 403 and Retry-After"),
		Entry(nil, "202 Wait\r\nRetry-After: 20",
			"data.example.com does not have the body ready yet: it responded with 202 and Retry-After"),
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
			return errorOf(client.Do(hopping, get.Request{URL: urlOf(port, path), Namespace: namespace})).Credential
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
