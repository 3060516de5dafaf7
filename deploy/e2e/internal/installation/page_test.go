package installation_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin/remote"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestPage(t *testing.T) { suitetest.Run(t, "Remote origin") }

var _ = Describe("A remote origin", func() {
	It("responds as instructed, counts requests, and knows what it has served", func(ctx SpecContext) {
		site := origin.NewSite("")
		pages, control := httptest.NewServer(site), httptest.NewServer(remote.Handler(site))
		DeferCleanup(pages.Close)
		DeferCleanup(control.Close)
		hold := installation.NewOrigin(http.DefaultClient, control.URL+"/", pages.URL+"/", "/run/")
		page := hold.Page("/a/b").Tagged()
		tag := ""
		shouldRespond := func(status int, body string) {
			GinkgoHelper()
			request := suitetest.Must(http.NewRequest(http.MethodGet, page.URL(), http.NoBody))
			request.Header.Set("If-None-Match", tag)
			answer := suitetest.Must(http.DefaultClient.Do(request))
			defer answer.Body.Close()
			tag = answer.Header.Get("ETag")
			Expect(io.ReadAll(answer.Body)).To(BeEquivalentTo(body))
			Expect(answer.StatusCode).To(Equal(status))
		}
		Expect(page.Hits(ctx)).To(BeZero())
		page.Says(ctx, "hello")
		shouldRespond(http.StatusOK, "hello")
		shouldRespond(http.StatusNotModified, "")
		page.Fails(ctx, http.StatusServiceUnavailable)
		shouldRespond(http.StatusServiceUnavailable, origin.ServerText)
		Expect(page.Hits(ctx)).To(Equal(3))
		Expect(page.NotModified(ctx)).To(Equal(1))

		Expect(hold.Served(page.URL()+"?x=1", []byte("hello"))).To(BeTrue())
		Expect(hold.Served(page.URL(), []byte(origin.ServerText))).To(BeFalse())
		Expect(hold.Served(page.URL()+"x", []byte("hello"))).To(BeFalse())
		Expect(hold.Forget(ctx)).To(Succeed())
		shouldRespond(http.StatusNotFound, "")
	})
})
