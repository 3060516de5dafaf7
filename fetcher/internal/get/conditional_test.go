package get_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
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
	client := newClient() //nolint:contextcheck // it ends with the spec
	had := suitetest.Must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")}))
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
		Entry("two Dates that differ", modified+date+"Date: Mon, 07 Nov 1994 09:49:37 GMT\r\n", "", never),
		Entry("the date of all files of a reproducible build, and an ETag made of it",
			date+v1+"Last-Modified: Tue, 01 Jan 1980 00:00:01 GMT\r\n", "", never),
		Entry("such a date and an ETag, but no Date", v1+"Last-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\n", "", never),
		Entry("the date of all files of npm", date+"Last-Modified: Sat, 26 Oct 1985 08:15:00 GMT\r\n", "", never),
		Entry("the year 0", date+"Last-Modified: Sat, 01 Jan 0000 00:00:00 GMT\r\n", "", never),
		Entry("an empty ETag", "ETag: \"\"\r\n", "", never),
		Entry("an empty weak ETag", "ETag: W/\"\"\r\n", "", never),
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
			client := newClient()
			unconditional := get.Validators{From: suitetest.Must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")})).From}
			for range 2 {
				next := suitetest.Must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: unconditional}))
				Expect(next.Validators).To(Equal(unconditional))
			}
			Expect(d.requests()).To(Equal("/a /a /a"))
			Expect(r.Conditional()).To(BeFalse())
			Expect(r.From).NotTo(BeEmpty())
		},
		Entry("with 412", 412), Entry("with 400", 400), Entry("with 403", 403), Entry("with 404", 404),
		Entry("with 416", 416), Entry("with 500", 500), Entry("with 501", 501), Entry("with 204", 204),
	)

	It("fails after one more GET if the status has another reason, and is not repeated after 429, 503 or Retry-After",
		func(ctx SpecContext) {
			client := newClient()
			for response, want := range map[string]string{
				empty(500, ""):                    "/a /a? /a",
				empty(503, ""):                    "/a /a?",
				empty(429, ""):                    "/a /a?",
				empty(401, ""):                    "/a /a?",
				empty(403, "Retry-After: 20\r\n"): "/a /a?",
			} {
				now := whole(v1, "old")
				d := talk(func(string) string { return now })
				had := suitetest.Must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")}))
				now = response
				_ = errorOf(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: had.Validators}))
				Expect(d.requests()).To(Equal(want))
			}
		})

	DescribeTable("is repeated without conditions after an empty 200, which may be a broken 304:",
		func(ctx SpecContext, headers, now string) {
			r, requests := refresh(ctx, respond{"/a": whole(v1, "old")},
				respond{"/a?": whole(v1+headers, ""), "/a": whole(v2, now)})
			Expect(requests).To(Equal("/a? /a"))
			Expect(r.NotModified).To(BeFalse())
			Expect(string(r.Body)).To(Equal(now))
			Expect(r.ETag).To(Equal(`"v2"`), "the next GET may be conditional again")
		},
		Entry("as it is", "", "new"),
		Entry("as gzip", "Content-Encoding: gzip\r\n", "new"),
		Entry("the file is empty now", "", ""),
	)

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

	It("is not made after a change of the credentials or headers that it carries", func(ctx SpecContext) {
		port := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`) // each tenant counts its versions
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			_, _ = io.WriteString(w, r.Header.Get("X-Tenant")+r.Header.Get("Authorization"))
		})
		entry := func(header string) string {
			return fmt.Sprintf("- {host: %s, namespaces: [a], schemes: [http], ports: [%d], %s}", host, port, header)
		}
		cfg.HeaderFile = writeFile("headers.yaml", "[]")
		token := filepath.Join(filepath.Dir(cfg.HeaderFile), "token")
		replace(token, "x")
		client, reload := newReloading(get.Deps{})
		request := get.Request{URL: urlOf(port, "/"), Namespace: "a"}
		change := func(path, content, body string) {
			GinkgoHelper()
			replace(path, content)
			Expect(reload()).To(Succeed())
			changed := suitetest.Must(client.Do(ctx, request))
			request.Validators = changed.Validators
			Expect(changed.NotModified).To(BeFalse())
			Expect(string(changed.Body)).To(Equal(body))
			Expect(client.Do(ctx, request)).To(HaveField("NotModified", true))
		}
		change(cfg.HeaderFile, entry("headers: {X-Tenant: x}"), "x")
		change(cfg.HeaderFile, entry("headers: {X-Tenant: y}"), "y")
		change(cfg.HeaderFile, entry("bearerFile: token"), "Bearer x")
		change(token, "y", "Bearer y")
		change(cfg.HeaderFile, "[]", "")
	})

	It("does not have invalid validators", func(ctx SpecContext) {
		d := talk(func(string) string { return whole(v1, "hello") })
		client := newClient()
		had := suitetest.Must(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")})).Validators
		had.ETag, had.LastModified = "v1\r\nX: y", "yesterday"
		Expect(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a"), Validators: had})).To(HaveField("NotModified", false))
		Expect(d.requests()).To(Equal("/a /a"))
	})

	It("is the only reason to accept a 304", func(ctx SpecContext) {
		d := talk(func(string) string { return empty(304, "") })
		client := newClient()
		Expect(errorOf(client.Do(ctx, get.Request{URL: urlOf(d.port, "/a")})).StatusCode).To(Equal(304))
	})
})
