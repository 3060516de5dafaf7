package watcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A watcher", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("publishes nothing at its start if the stream is up to date", func(ctx SpecContext) {
		first := w.watch().awaitReady()
		w.satisfied(ctx, "satisfied", "example.com/a")
		w.create(ctx, "waiting", "k=example.com/b")
		Eventually(w.url(ctx, w.key("waiting", "k"))).ShouldNot(BeEmpty())
		first.stop()
		before := w.sequence(ctx, pipeline.Requests)()
		second := w.watch().awaitReady()
		Eventually(second.log).Should(gbytes.Say("publishing wants"))
		Consistently(w.sequence(ctx, pipeline.Requests)).Should(Equal(before))
	})

	// lost empties the stream and expects the watcher to refill it.
	lost := func(ctx context.Context, empty func()) {
		GinkgoHelper()
		settled := w.satisfied(ctx, "settled", "example.com/a")
		waiting := w.key("waiting", "k")
		w.create(ctx, "waiting", "k=example.com/b")
		Eventually(w.url(ctx, waiting)).ShouldNot(BeEmpty())
		empty()
		Eventually(w.url(ctx, settled)).Should(Equal("https://example.com/a"))
		Eventually(w.url(ctx, waiting)).Should(Equal("https://example.com/b"))
		Expect(w.want(ctx, settled)().GetCached().GetSha256()).To(Equal(pipeline.Digest("body of example.com/a")))
		Expect(w.want(ctx, waiting)().GetCached()).To(BeNil())
		Expect(w.notes(ctx, "Drifted")).To(BeEmpty())
	}

	It("refills a deleted stream", func(ctx SpecContext) {
		w.watch(func(o *options) { o.pace.Check = 100 * time.Millisecond }).awaitReady()
		lost(ctx, func() { Expect(w.js.DeleteStream(ctx, pipeline.Requests)).To(Succeed()) })
	})

	It("refills a purged stream long before the next comparison", func(ctx SpecContext) {
		i := w.watch(func(o *options) { o.pace.Check = time.Hour }).awaitReady()
		lost(ctx, func() {
			stream := must(w.js.Stream(ctx, pipeline.Requests))
			Expect(stream.Purge(ctx)).To(Succeed())
		})
		Expect(i.log).To(gbytes.Say("the stream of requests was changed by another client: it was purged"))
		Eventually(i.value(own + "purges_total")).Should(BeEquivalentTo(1))
	})

	It("publishes the backlog after an outage of the broker, and logs little during it", func(ctx SpecContext) {
		i := w.watch().awaitReady()
		gone := w.satisfied(ctx, "gone", "example.com")
		w.nats.Stop()
		w.delete(ctx, "gone")
		for n := range 50 {
			w.create(ctx, fmt.Sprintf("cm-%d", n), fmt.Sprintf("k=example.com/%d", n))
		}
		Eventually(i.ready).Should(ContainSubstring("[-]nats not ready"))
		Consistently(func() int { return bytes.Count(i.log.Contents(), []byte("\n")) }).Should(BeNumerically("<", 10))
		Expect(w.nats.Start()).To(Succeed())
		for n := range 50 {
			Eventually(w.url(ctx, w.key(fmt.Sprintf("cm-%d", n), "k"))).Should(Equal(fmt.Sprintf("https://example.com/%d", n)))
		}
		Eventually(w.retracted(ctx, gone)).Should(BeTrue())
		Expect(bytes.Count(i.log.Contents(), []byte("\n"))).To(BeNumerically("<", 15))
		i.awaitReady()
	})

	DescribeTable("continues as soon as the connection is back if it breaks", func(ctx SpecContext, at string) {
		const count = 50
		name := func(n int) string { return fmt.Sprintf("cm-%d", n) }
		w.createAll(ctx, count, name, "k=example.com")
		i := w.watch(func(o *options) { o.dial = nats.InProcessServer(&breaking{server: w.nats, at: at}) })
		Eventually(i.log).Should(gbytes.Say("no connection to NATS"))
		for n := range count {
			// less than the timeout of a request
			Eventually(w.url(ctx, w.key(name(n), "k"))).WithTimeout(8 * time.Second).ShouldNot(BeEmpty())
		}
	},
		Entry("while it reads the stream", "DIRECT.GET"),
		Entry("while it publishes a want", "HPUB curl.want."),
	)

	It("retracts malformed messages of its own namespaces only", func(ctx SpecContext) {
		w.watch().awaitReady().stop()
		wanted, unwanted, elsewhere := w.key("cm", "k"), w.key("none", "k"),
			pipeline.Key{Namespace: "another", Name: "none", Key: "k"}
		for _, key := range []pipeline.Key{wanted, unwanted, elsewhere} {
			must(w.js.Publish(ctx, key.Want(), []byte("garbage")))
		}
		must(w.js.Publish(ctx, "curl.want.nonsense", []byte("garbage")))
		w.create(ctx, "cm", "k=example.com")
		w.watch().awaitReady()
		Eventually(w.url(ctx, wanted)).Should(Equal("https://example.com"))
		Eventually(w.retracted(ctx, unwanted)).Should(BeTrue())
		Expect(w.retracted(ctx, elsewhere)()).To(BeFalse(), "it belongs to another namespace")
	})
})

// fetch acknowledges all requests and loses them. A request may be delivered a moment after its publish.
func (w *world) fetch(ctx context.Context) {
	GinkgoHelper()
	var last uint64
	Expect(w.pipeline.LoadWants(ctx,
		func(m pipeline.Message) error { last = max(last, m.Sequence); return nil })).To(Succeed())
	consumer := must(w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
	Eventually(func(g Gomega) {
		batch, err := consumer.FetchNoWait(100)
		g.Expect(err).NotTo(HaveOccurred())
		for m := range batch.Messages() {
			g.Expect(m.DoubleAck(ctx)).To(Succeed())
		}
		info, err := consumer.Info(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.AckFloor.Stream).To(BeNumerically(">=", last))
	}).Should(Succeed())
}

// breaking is a connection that breaks once when the client sends a text.
type breaking struct {
	net.Conn
	server *natstest.Server
	at     string
	broken bool
}

func (b *breaking) InProcessConn() (conn net.Conn, err error) {
	b.Conn, err = b.server.InProcessConn()
	return b, err
}

func (b *breaking) Write(data []byte) (int, error) {
	if !b.broken && bytes.Contains(data, []byte(b.at)) {
		b.broken = true
		return 0, b.Close()
	}
	return b.Conn.Write(data)
}

// audited shortens the intervals: the grace period is 100 ms, and a timer is overdue after 200 ms.
func audited(o *options) { o.pace.Audit, o.pace.Check = 400*time.Millisecond, 100*time.Millisecond }

// ahead sets the machine's clock ahead.
func ahead(by time.Duration) func(*options) { return func(o *options) { o.pace.Ahead = by } }

func hourly(cm *corev1.ConfigMap) { cm.Annotations["x-kv8s.io/"+annotation.RefreshName] = "1h" }

var _ = Describe("A key with an hourly refresh", func() {
	It("is not requested again if the machine's clock is 10 min ahead", func(ctx SpecContext) {
		w := newWorld(ctx)
		key := w.key("cm", "k")
		w.create(ctx, "cm", "k=example.com", hourly)
		i := w.watch(audited, ahead(10*time.Minute)).awaitReady()
		w.answer(ctx, key, "body")
		Eventually(i.value(own + `keys{state="ok"}`)).Should(BeEquivalentTo(1))
		want, sequence, err := w.pipeline.LastWant(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.pipeline.SetTimer(ctx, &v1.Due{
			Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH,
			Cached: &v1.Cached{Sha256: pipeline.Digest("body")},
		}, time.Now().Add(5*time.Minute))).Error().NotTo(HaveOccurred())
		w.fetch(ctx)
		Consistently(func() v1.Cause { return w.want(ctx, key)().GetCause() }).WithTimeout(time.Second).
			Should(Equal(v1.Cause_CAUSE_NEW))
	})
})

// want returns the want of a key, or nil.
func (w *world) want(ctx context.Context, key pipeline.Key) func() *v1.Want {
	return func() *v1.Want {
		want, _, err := w.pipeline.LastWant(ctx, key)
		if err != nil {
			return nil
		}
		return want
	}
}

// url returns the URL in the want of a key.
func (w *world) url(ctx context.Context, key pipeline.Key) func() string {
	return func() string { return w.want(ctx, key)().GetUrl() }
}

// retracted reports whether a key has a tombstone.
func (w *world) retracted(ctx context.Context, key pipeline.Key) func() bool {
	return func() bool {
		want, seq, err := w.pipeline.LastWant(ctx, key)
		return err == nil && want == nil && seq > 0
	}
}

// sequence returns the last sequence of a stream.
func (w *world) sequence(ctx context.Context, stream string) func() uint64 {
	return func() uint64 {
		s, err := w.js.Stream(ctx, stream)
		if err != nil {
			return 0
		}
		return s.CachedInfo().State.LastSeq
	}
}

// receive acknowledges all messages from now on, like fetchers.
func (w *world) receive(ctx context.Context) {
	GinkgoHelper()
	consumer := must(w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
	consuming := must(consumer.Consume(func(m jetstream.Msg) { _ = m.Ack() }))
	DeferCleanup(consuming.Stop)
}

// results returns the pending results.
func (w *world) results(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	stream := must(w.js.Stream(ctx, pipeline.Results))
	results := []*v1.Result{}
	state := stream.CachedInfo().State
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		_, key, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		result := must(pipeline.DecodeResult(key, m.Data))
		results = append(results, result)
	}
	return results
}

// reports returns the pending reconcile requests.
func (w *world) reports(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	return slices.DeleteFunc(w.results(ctx), func(r *v1.Result) bool { return r.GetReconcile() == nil })
}

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

// silence discards the rest of the current responses without ending them. New ones work.
func (g *gateway) silence() { g.mute.Swap(&atomic.Bool{}).Store(true) }

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

// answer waits for the want of a key and acts like the writer: one patch with value and status.
func (w *world) answer(ctx context.Context, key pipeline.Key, body string) {
	GinkgoHelper()
	Eventually(w.want(ctx, key)).ShouldNot(BeNil())
	want, seq, err := w.pipeline.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	held := status.Status{Keys: map[string]status.Entry{key.Key: {
		URL: want.GetUrl(), SHA256: pipeline.Digest(body), Size: int64(len(body)), ChangedAt: time.Now(),
		Fence: status.Fence{Epoch: want.GetEpoch(), Seq: seq},
	}}}
	w.patch(ctx, annotation.FieldManager, key.Name, object{
		"data": object{key.Key: body}, "metadata": object{"annotations": object{annotation.StatusKey: held.String()}},
	})
}

// satisfied creates a ConfigMap with one written key.
func (w *world) satisfied(ctx context.Context, name, url string) pipeline.Key {
	GinkgoHelper()
	key := w.key(name, "k")
	w.create(ctx, name, "k="+url)
	w.answer(ctx, key, "body of "+url)
	return key
}

var _ = Describe("A backlog of wants", func() {
	It("is limited until fetchers receive wants, and does not delay other namespaces",
		func(ctx SpecContext) {
			const most, workers = 512, 8
			w := newWorld(ctx)
			other := *w
			other.namespace = kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil)
			pairs := ""
			for n := range 64 {
				pairs += fmt.Sprintf(" k%d=example.com", n)
			}
			w.createAll(ctx, 16, func(n int) string { return fmt.Sprintf("cm-%d", n) }, pairs)
			w.watch(func(o *options) { o.config.Namespaces = []string{w.namespace, other.namespace} })
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">=", most))
			Consistently(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically("<", most+workers))
			other.create(ctx, "cm", "k=example.com")
			Eventually(other.url(ctx, other.key("cm", "k"))).ShouldNot(BeEmpty())
			w.receive(ctx)
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">=", 16*64+1))
		})
})

var _ = Describe("A pinned key", func() {
	const body = "earlier content"
	DescribeTable("whose body", func(ctx SpecContext, kept string, reports int) {
		w := newWorld(ctx)
		must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		digest := pipeline.Digest(body)
		if kept != "" {
			must(w.js.PublishMsg(ctx, &nats.Msg{Subject: pipeline.BodySubject(w.namespace, digest), Data: []byte(kept)}))
		}
		w.watch().awaitReady()
		w.create(ctx, "cm", "k=example.com")
		Eventually(w.want(ctx, w.key("cm", "k"))).ShouldNot(BeNil())
		before := len(w.reports(ctx))
		w.annotate(ctx, "cm", object{"x-kv8s.io/curl-sha256": "k=" + digest})
		Eventually(func() string { return w.want(ctx, w.key("cm", "k"))().GetSha256() }).Should(Equal(digest))
		Expect(w.want(ctx, w.key("cm", "k"))().GetCached() != nil).To(Equal(reports > 0), "nothing to fetch")
		Eventually(func() int { return len(w.reports(ctx)) - before }).Should(Equal(reports), "messages for the writer")
	},
		Entry("is in the history is asked of the writer, not of a fetcher", body, 1),
		Entry("is forged there is asked of the writer, which compares the digest", "forged", 1),
		Entry("is not there is fetched", "", 0),
	)
})
