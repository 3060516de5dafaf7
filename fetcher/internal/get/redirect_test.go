package get_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/failure"
)

var _ = Describe("a redirect", func() {
	// countdown redirects from /n to /n-1 and responds with hello at /0.
	countdown := func(status int) (port int) {
		return serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			n, _ := strconv.Atoi(r.URL.Path[1:])
			if n == 0 {
				_, _ = io.WriteString(w, "hello")
				return
			}
			w.Header().Set("Location", fmt.Sprint(n-1))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, secret)
		})
	}

	DescribeTable("is followed",
		func(ctx SpecContext, status int) {
			port := countdown(status)
			response := suitetest.Must(newClient().Do(ctx, get.Request{URL: urlOf(port, "/5?q")}))
			Expect(string(response.Body)).To(Equal("hello"))
			for _, r := range seen.requests() {
				Expect(r.Method).To(Equal(http.MethodGet))
				Expect(r.Header).NotTo(HaveKey("Referer"))
			}
		},
		Entry(nil, 301), Entry(nil, 302), Entry(nil, 303), Entry(nil, 307), Entry(nil, 308),
	)

	It("is followed up to five times", func(ctx SpecContext) {
		err := errorOf(newClient().Do(ctx, get.Request{URL: urlOf(countdown(302), "/6")}))
		Expect(err.Class).To(Equal(failure.TooManyRedirects))
		Expect(err).To(MatchError("data.example.com redirected more than 5 times"))
		Expect(seen.requests()).To(HaveLen(6))
	})
})
