package watcher_test

import (
	"encoding/json"
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

var _ = Describe("A watcher", func() {
	var (
		w *world
		g *gateway
	)

	BeforeEach(func(ctx SpecContext) {
		w, g = newWorld(ctx), newGateway()
	})

	over := func(o *options) { o.cluster = &rest.Config{Host: g.URL, QPS: -1} }

	It("restarts a silent watch over a new connection", func(ctx SpecContext) {
		i := w.watch(over, func(o *options) { o.pace.Stall = 2 * time.Second }).awaitReady()
		gone := w.satisfied(ctx, "gone", "example.com")
		g.silence()
		w.delete(ctx, "gone")
		w.create(ctx, "cm", "k=example.com")
		Eventually(w.retracted(ctx, gone)).Should(BeTrue())
		Eventually(w.url(ctx, w.key("cm", "k"))).ShouldNot(BeEmpty())
		Expect(i.log).To(gbytes.Say("is silent"))
	})

	It("lists again if the API server is at an earlier version than the watch, as after a restore", func(ctx SpecContext) {
		i := w.watch(audited, over).awaitReady()
		key := w.satisfied(ctx, "cm", "example.com")
		lists := g.lists.Load()
		g.restored.Store(true)
		Eventually(i.log).Should(gbytes.Say("earlier version than the watch"))
		g.restored.Store(false)
		Eventually(g.lists.Load).Should(BeNumerically(">", lists))
		w.ask(ctx, "cm", "k=example.com/new")
		Eventually(w.url(ctx, key)).Should(Equal("https://example.com/new"))
	})
})

// gateway is a proxy of the API server that can silence and forge responses.
type gateway struct {
	*httptest.Server
	// lists counts requests for a list.
	lists atomic.Int64
	// mute discards the rest of the current responses.
	mute atomic.Pointer[atomic.Bool]
	// restored makes the server report an earlier version.
	restored atomic.Bool
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
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			r.Body = muted{r.Body, g.mute.Load()}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {},
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if query.Get("limit") == "1" && g.restored.Load() {
			rw.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(rw).Encode(object{
				"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
				"metadata": object{"resourceVersion": "1"}, "items": []object{},
			})
			return
		}
		if list := query.Get("watch") == "" || query.Get("sendInitialEvents") != ""; list && query.Get("limit") != "1" {
			g.lists.Add(1)
		}
		proxy.ServeHTTP(rw, r)
	}))
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
