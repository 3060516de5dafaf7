package remote_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin/remote"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestRemote(t *testing.T) { suitetest.Run(t, "Remote origin") }

// serve runs an origin with its two addresses, and returns a hold on it.
func serve() (hold *remote.Origin, control *httptest.Server) {
	site := origin.NewSite("")
	pages := httptest.NewServer(site)
	DeferCleanup(pages.Close)
	control = httptest.NewServer(remote.Handler(site))
	DeferCleanup(control.Close)
	return remote.New(http.DefaultClient, control.URL+"/", pages.URL+"/", "/run/"), control
}

func get(url, known string) (status int, body, tag string) {
	GinkgoHelper()
	request := suitetest.Must(http.NewRequest(http.MethodGet, url, http.NoBody))
	if known != "" {
		request.Header.Set("If-None-Match", known)
	}
	answer := suitetest.Must(http.DefaultClient.Do(request))
	defer answer.Body.Close()
	text := suitetest.Must(io.ReadAll(answer.Body))
	return answer.StatusCode, string(text), answer.Header.Get("ETag")
}

var _ = Describe("A remote origin", func() {
	It("responds as instructed, and counts requests", func(ctx SpecContext) {
		hold, _ := serve()
		page := hold.Page("/a/b").Tagged()
		Expect(page.Count(ctx)).To(Equal(remote.Count{}))
		Expect(page.Says(ctx, "hello")).To(Succeed())
		status, body, tag := get(page.URL(), "")
		Expect(status).To(Equal(200))
		Expect(body).To(Equal("hello"))
		status, body, _ = get(page.URL(), tag)
		Expect(status).To(Equal(304))
		Expect(body).To(BeEmpty())
		Expect(page.Fails(ctx, 503)).To(Succeed())
		status, body, _ = get(page.URL(), "")
		Expect(status).To(Equal(503))
		Expect(body).To(Equal(origin.ServerText))
		Expect(page.Count(ctx)).To(Equal(remote.Count{Hits: 3, NotModified: 1}))
	})

	It("serves pages until it is told to forget them", func(ctx SpecContext) {
		hold, _ := serve()
		page := hold.Page("/bytes")
		Expect(page.Serves(ctx, []byte{0, 0xff})).To(Succeed())
		Expect(page.Says(ctx, "text")).To(Succeed())
		Expect(hold.Served(page.URL(), []byte{0, 0xff})).To(BeTrue())
		Expect(hold.Served(page.URL()+"?x=1", []byte("text"))).To(BeTrue())
		Expect(hold.Served(page.URL(), []byte("never"))).To(BeFalse())
		Expect(hold.Served(page.URL()+"x", []byte("text"))).To(BeFalse())
		Expect(hold.Forget(ctx)).To(Succeed())
		status, _, _ := get(page.URL(), "")
		Expect(status).To(Equal(404))
	})
})
