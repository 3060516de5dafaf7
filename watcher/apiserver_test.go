package watcher_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/client-go/rest"
)

var _ = It("A watcher restarts a silent watch over a new connection", func(ctx SpecContext) {
	w, g := newWorld(ctx), newGateway()
	i := w.watch(func(o *options) {
		o.cluster, o.pace.Stall = &rest.Config{Host: g.URL, QPS: -1}, 2*time.Second
	}).awaitReady()
	gone := w.satisfied(ctx, "gone", "example.com")
	g.silence()
	w.delete(ctx, "gone")
	w.create(ctx, "cm", "k=example.com")
	Eventually(w.retracted(ctx, gone)).Should(BeTrue())
	Eventually(w.url(ctx, w.key("cm", "k"))).ShouldNot(BeEmpty())
	Expect(i.log).To(gbytes.Say("is silent"))
})

// gateway is a proxy of the API server that can silence responses.
type gateway struct {
	*httptest.Server
	// mute discards the rest of the current responses.
	mute atomic.Pointer[atomic.Bool]
}

// silence discards the rest of the current responses without ending them. New ones work.
func (g *gateway) silence() { g.mute.Swap(&atomic.Bool{}).Store(true) }

func newGateway() *gateway {
	GinkgoHelper()
	target := must(url.Parse(cluster.Host))
	own, _ := dialed(cluster)
	transport := must(rest.TransportFor(own))
	g := &gateway{}
	g.mute.Store(&atomic.Bool{})
	g.Server = httptest.NewServer(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			r.Body = muted{r.Body, g.mute.Load()}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {},
	})
	DeferCleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// muted is the body of a response that can be silenced.
type muted struct {
	io.ReadCloser
	mute *atomic.Bool
}

func (m muted) Read(p []byte) (n int, err error) {
	for {
		if n, err = m.ReadCloser.Read(p); err != nil || !m.mute.Load() {
			return n, err
		}
	}
}
