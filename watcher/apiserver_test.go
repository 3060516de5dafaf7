package watcher_test

import (
	"bytes"
	"fmt"
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

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = It("A watcher restarts a silent watch over a new connection", func(ctx SpecContext) {
	g := newGateway()
	i := w.watch(func(o *options) {
		o.cluster, o.at.Stall = &rest.Config{Host: g.URL, QPS: -1}, 2*time.Second
	}).awaitReady()
	gone := w.satisfied(ctx, "gone", "example.com")
	g.silence()
	w.delete(ctx, "gone")
	w.wanted(ctx, "cm", "example.com")
	Eventually(w.retracted(ctx, gone)).Should(BeTrue())
	Expect(i.Log).To(gbytes.Say("is silent"))
})

var _ = It("A watcher lists objects without a stream if the bookmark at its end is missing", func(ctx SpecContext) {
	g := newGateway()
	g.unmarked.Store(true)
	w.create(ctx, "cm", "k=example.com")
	i := w.watch(func(o *options) {
		o.cluster, o.at.Stall = &rest.Config{Host: g.URL, QPS: -1}, 500*time.Millisecond
	})
	edits := 0
	Eventually(func() string { // a list that never ends is not silent
		edits++
		w.create(ctx, fmt.Sprint("other", edits), "")
		return w.url(ctx, w.key("cm", "k"))()
	}).ShouldNot(BeEmpty())
	i.awaitReady()
	Expect(i.Log).To(gbytes.Say("as a stream does not end"))
})

// gateway is a proxy of the API server that can silence responses.
type gateway struct {
	*httptest.Server
	// unmarked removes the mark of the bookmark that ends a list as a stream.
	unmarked atomic.Bool
	// mute discards the rest of the current responses.
	mute atomic.Pointer[atomic.Bool]
}

// silence discards the rest of the current responses without ending them. New ones work.
func (g *gateway) silence() { g.mute.Swap(&atomic.Bool{}).Store(true) }

func newGateway() *gateway {
	GinkgoHelper()
	target := suitetest.Must(url.Parse(cluster.Host))
	own, _ := dialed(cluster)
	transport := suitetest.Must(rest.TransportFor(own))
	g := &gateway{}
	g.mute.Store(&atomic.Bool{})
	g.Server = httptest.NewServer(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			r.Body = muted{r.Body, g.mute.Load(), &g.unmarked}
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
	mute     *atomic.Bool
	unmarked *atomic.Bool
}

func (m muted) Read(p []byte) (n int, err error) {
	for {
		n, err = m.ReadCloser.Read(p)
		if m.unmarked.Load() {
			copy(p, bytes.ReplaceAll(p[:n], []byte("initial-events-end"), []byte("initial-events-say")))
		}
		if err != nil || !m.mute.Load() {
			return n, err
		}
	}
}
