package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// brokers are the servers of a cluster. Each has a replica of every stream.
type brokers []*natstest.Server

// connect opens a connection until the end of the spec.
func (b brokers) connect() jetstream.JetStream {
	GinkgoHelper()
	nc := suitetest.Must(nats.Connect(b.all(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))
	DeferCleanup(nc.Close)
	return suitetest.Must(jetstream.New(nc))
}

// all returns the addresses in the form of --nats-url.
func (b brokers) all() string {
	var urls []string
	for _, server := range b {
		urls = append(urls, server.URL())
	}
	return strings.Join(urls, ",")
}

// kill kills the server in a role, and returns it.
func (b brokers) kill(ctx context.Context, js jetstream.JetStream, is role) (one *natstest.Server) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		name := is(ctx, g, b, js)
		n := slices.Index([]string{"natstest-0", "natstest-1", "natstest-2"}, name)
		g.Expect(n).To(BeNumerically(">=", 0), "a server that has the role")
		one = b[n]
	}).Should(Succeed())
	Expect(one.Kill()).To(Succeed())
	return one
}

// eventuallyCurrent waits until each server has all messages of the stream of requests.
func (b brokers) eventuallyCurrent(ctx context.Context, js jetstream.JetStream) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		info := requests(ctx, g, js)
		g.Expect(info.Replicas).To(HaveLen(len(b) - 1))
		for _, replica := range info.Replicas {
			g.Expect(replica).To(HaveField("Current", true))
		}
	}).WithTimeout(time.Minute).Should(Succeed())
}

// runCluster runs three servers until the end of the spec. They sync to disk before they
// acknowledge, as in deploy/nats/cluster.conf.
func runCluster(ctx context.Context) brokers {
	GinkgoHelper()
	var b brokers = suitetest.Must(natstest.RunCluster(3, natstest.Options{Monitor: true, SyncAlways: true}))
	for _, server := range b {
		DeferCleanup(server.Close)
	}
	js := b.connect()
	Eventually(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: len(b)})
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
	return b
}

// role returns the name of the server in a role, or "" if none has it at the moment.
type role func(ctx context.Context, g Gomega, b brokers, js jetstream.JetStream) string

// streamLeader returns the leader of the stream of requests.
func streamLeader(ctx context.Context, g Gomega, _ brokers, js jetstream.JetStream) string {
	return requests(ctx, g, js).Leader
}

// consumerLeader returns the leader of the fetchers' consumer.
func consumerLeader(ctx context.Context, g Gomega, _ brokers, js jetstream.JetStream) string {
	c, err := js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
	g.Expect(err).NotTo(HaveOccurred())
	return c.CachedInfo().Cluster.Leader
}

// follower returns a server with a replica of the stream of requests that leads neither the stream nor the
// consumer.
func follower(ctx context.Context, g Gomega, b brokers, js jetstream.JetStream) string {
	handing := consumerLeader(ctx, g, b, js)
	for _, replica := range requests(ctx, g, js).Replicas {
		if replica.Name != handing {
			return replica.Name
		}
	}
	return ""
}

// metaLeader returns the leader that places streams and consumers.
func metaLeader(ctx context.Context, g Gomega, b brokers, _ jetstream.JetStream) string {
	text, _, err := process.Get(ctx, b[0].MonitorURL()+"/jsz")
	g.Expect(err).NotTo(HaveOccurred())
	var info server.JSInfo
	g.Expect(json.Unmarshal([]byte(text), &info)).To(Succeed())
	g.Expect(info.Meta).NotTo(BeNil())
	return info.Meta.Leader
}

func requests(ctx context.Context, g Gomega, js jetstream.JetStream) *jetstream.ClusterInfo {
	s, err := js.Stream(ctx, pipeline.Requests)
	g.Expect(err).NotTo(HaveOccurred())
	return s.CachedInfo().Cluster
}

var _ = Describe("A cluster of three brokers", func() {
	// A message whose acknowledgement is lost is fetched again after shortAckWait, and once more while a new
	// leader is elected. A longer election causes a redelivery after each shortAckWait.
	gets := func(since time.Time) int { return max(4, 1+int(time.Since(since)/shortAckWait)) }

	It("fetches every want and writes nothing twice after kill -9 of the server in each role", func(ctx SpecContext) {
		b := runCluster(ctx)
		w := env.World(ctx, world.Options{Broker: b.all(), AckWait: shortAckWait})
		for range 2 { // most likely each connects to a different server
			w.Launch(ctx, world.Fetcher).EventuallyReady(ctx)
		}
		load, began, created := w.Prepare("load", 120), time.Now(), 0
		create := func(count int) {
			for range count {
				load.Create(ctx, created)
				created++
			}
		}
		for _, is := range []role{streamLeader, consumerLeader, metaLeader} {
			create(20)
			killed := b.kill(ctx, w.JetStream, is)
			create(20)
			Expect(killed.Start()).To(Succeed())
			b.eventuallyCurrent(ctx, w.JetStream)
		}
		load.EventuallyEnds(ctx, 3*time.Minute)
		Expect(load.MostHits()).To(BeNumerically("<=", gets(began)), "GETs of one page")
	})

	It("loses nothing when two of three servers restart under load", func(ctx SpecContext) {
		b := runCluster(ctx)
		w := env.World(ctx, world.Options{Broker: b.all(), AckWait: shortAckWait})
		load := w.Begin(ctx, 100)
		began := time.Now()
		for n, stop := range []func(*natstest.Server){
			(*natstest.Server).Stop,
			func(s *natstest.Server) { Expect(s.Kill()).To(Succeed()) },
		} {
			load.EventuallyFills(ctx, 30+30*n)
			pair := brokers{b[n], b[n+1]}
			for _, server := range pair {
				stop(server)
			}
			for _, server := range pair {
				Expect(server.Start()).To(Succeed())
			}
		}
		load.EventuallyEnds(ctx, 3*time.Minute)
		Expect(load.MostHits()).To(BeNumerically("<=", gets(began)), "GETs of one page")
		Expect(w.Stored(ctx, pipeline.Requests, "curl.want.>")).To(Equal(100))
		b.eventuallyCurrent(ctx, w.JetStream)
	})

	It("restarts a stream with few messages and a large gap of sequence numbers", func(ctx SpecContext) {
		const gap = 30_000
		b := runCluster(ctx)
		w := env.World(ctx, world.Options{Broker: b.all(), AckWait: shortAckWait})
		load := w.Begin(ctx, 20)
		load.EventuallyEnds(ctx, time.Minute)
		for range gap {
			suitetest.Must(w.JetStream.PublishAsync("curl.ended.gap", nil, jetstream.WithStallWait(time.Minute)))
		}
		Eventually(ctx, w.JetStream.PublishAsyncComplete()).WithTimeout(time.Minute).Should(BeClosed())
		Expect(b[0].Kill()).To(Succeed())
		for i, cm := range load.ConfigMaps { // each want replaces one before the gap
			cm.Ask(ctx, "mydata="+w.Origin.Page(fmt.Sprint("/after-", i)).Says("after").URL())
		}
		began := time.Now()
		Expect(b[0].Start()).To(Succeed())
		b.eventuallyCurrent(ctx, w.JetStream)
		AddReportEntry("catching up", time.Since(began).String())
		for _, cm := range load.ConfigMaps {
			cm.EventuallyHasData(ctx, "mydata", "after")
		}
	})

	It("restores lost messages without a GET for held keys when leaders step down during audits", func(ctx SpecContext) {
		b := runCluster(ctx)
		w := env.World(ctx, world.Audited(world.Options{Broker: b.all()}))
		held, kept := w.Fill(ctx, "held", "held", world.Annotated(refreshKey, "5m"))
		lost := w.Origin.Page("/lost").Says("lost")
		w.EventuallyQuiet(ctx)
		filling := held.Hits() // more than one if the audit requested a body that was on its way
		Expect(w.Writer().Kill()).To(Succeed())
		cm := w.Create(ctx, "lost", world.Asking("mydata="+lost.URL()), world.Annotated(refreshKey, "5m"))
		Eventually(func() int { return w.Stored(ctx, pipeline.Results, "curl.result.content.>") }).Should(Equal(1))
		w.Purge(ctx, pipeline.Results)
		stop := world.Meanwhile(ctx, func() {
			for _, stream := range []string{pipeline.Requests, pipeline.Results} {
				// A stream without a leader needs no step-down.
				_, _ = w.Conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, aWhile)
			}
		})
		w.Writer().Restart(ctx)
		Consistently(held.Hits).WithTimeout(2 * aWhile).Should(Equal(filling))
		stop()
		cm.Within(time.Minute).EventuallyHasData(ctx, "mydata", "lost")
		w.EventuallyQuiet(ctx)
		Expect(held.Hits()).To(Equal(filling))
		Expect(kept.Writes(ctx)).To(Equal(1))
	})

	It("reads wants from the other servers after one is killed", func(ctx SpecContext) {
		b := runCluster(ctx)
		js := b.connect()
		c := pipeline.NewClient(js)
		key := pipeline.Key{Namespace: "default", Name: "cm", Key: "key"}
		suitetest.Must(c.PublishWant(ctx,
			&v1.Want{Namespace: key.Namespace, Name: key.Name, Key: key.Key, Uid: "uid", Url: "https://a.example"}, 0))
		b.kill(ctx, js, follower)
		var readers sync.WaitGroup
		defer readers.Wait()
		for range 12 { // some may be sent to the killed server
			readers.Go(func() {
				defer GinkgoRecover()
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				found := 0
				Expect(c.LoadWants(ctx, func(pipeline.Message) error { found++; return nil })).To(Succeed())
				Expect(found).To(Equal(1))
			})
		}
	})
})
