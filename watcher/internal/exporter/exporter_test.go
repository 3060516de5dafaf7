package exporter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/exporter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an exporter on a real broker.
type bench struct {
	*gomega.WithT
	t        *testing.T
	server   *natstest.Server
	js       jetstream.JetStream
	client   *pipeline.Client
	epoch    int64
	set      *metric.Set
	registry *prometheus.Registry
	stop     func()
}

func newBench(t *testing.T, o natstest.Options) *bench {
	t.Helper()
	b := &bench{WithT: gomega.NewWithT(t), t: t, registry: prometheus.NewRegistry()}
	b.SetDefaultEventuallyTimeout(20 * time.Second)
	server := natstest.Broker(t, o)
	js := natstest.Connect(t, server, nats.ReconnectBufSize(-1))
	b.server, b.js, b.client = server, js, pipeline.NewClient(js)
	b.set = metric.New(b.registry, "pipeline")
	return b
}

// run creates the streams and starts the exporter.
func (b *bench) run() *bench {
	b.t.Helper()
	var err error
	b.epoch, err = pipeline.Ensure(b.t.Context(), b.js, pipeline.Topology{})
	b.Expect(err).NotTo(gomega.HaveOccurred())
	e := exporter.New(20*time.Millisecond,
		exporter.Deps{Client: b.client, Log: zerolog.Nop()})
	e.Measure(b.set)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	b.stop = func() { cancel(); <-ended }
	b.t.Cleanup(b.stop)
	b.Eventually(b.series).Should(gomega.HaveKeyWithValue("curlmethat_pipeline_up", 1.0))
	return b
}

func (b *bench) series() (map[string]float64, error) { return suitetest.Metrics(b.registry) }

// becomes waits until a series has a value.
func (b *bench) becomes(series string, value any) {
	b.t.Helper()
	b.Eventually(b.series).Should(gomega.HaveKeyWithValue("curlmethat_pipeline_"+series, value), series)
}

func (b *bench) want(name string) uint64 {
	b.t.Helper()
	seq, err := b.client.PublishWant(b.t.Context(), &v1.Want{
		Namespace: "default", Name: name, Key: "k", Uid: "uid", Url: "https://data.example.com", Epoch: b.epoch,
	}, 0)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return seq
}

func (b *bench) take(stream, consumer string) jetstream.Msg {
	b.t.Helper()
	c, err := b.js.Consumer(b.t.Context(), stream, consumer)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	m, err := c.Next(jetstream.FetchMaxWait(5 * time.Second))
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return m
}

// movements has an action for each metric that changes it, and the value afterwards.
func movements() map[string]struct {
	series string
	do     func(*bench)
	value  any
} {
	type movement = struct {
		series string
		do     func(*bench)
		value  any
	}
	want := func(b *bench) { b.want("cm") }
	nothing := func(*bench) {}
	positive := gomega.BeNumerically(">", 0.0)
	return map[string]movement{
		"up":               {"up", func(b *bench) { b.server.Stop() }, 0.0},
		"backlog_messages": {`backlog_messages{consumer="fetcher"}`, want, 1.0},
		"in_flight_messages": {
			`in_flight_messages{consumer="fetcher"}`,
			func(b *bench) { b.want("cm"); b.take(pipeline.Requests, pipeline.FetcherConsumer) }, 1.0,
		},
		"in_flight_limit_messages": {`in_flight_limit_messages{consumer="writer"}`, nothing, 4096.0},
		"redelivered_messages": {`redelivered_messages{consumer="fetcher"}`, func(b *bench) {
			b.want("cm")
			b.Expect(b.take(pipeline.Requests, pipeline.FetcherConsumer).Nak()).To(gomega.Succeed())
			b.take(pipeline.Requests, pipeline.FetcherConsumer)
		}, 1.0},
		"waiting_pulls": {`waiting_pulls{consumer="writer"}`, func(b *bench) {
			c, err := b.js.Consumer(b.t.Context(), pipeline.Results, pipeline.WriterConsumer)
			b.Expect(err).NotTo(gomega.HaveOccurred())
			_, err = c.Fetch(1, jetstream.FetchContext(b.t.Context()))
			b.Expect(err).NotTo(gomega.HaveOccurred())
		}, 1.0},
		"oldest_message_age_seconds": {`oldest_message_age_seconds{consumer="fetcher"}`, want, positive},
		"oldest_message_age_seconds ": {`oldest_message_age_seconds{consumer="writer"}`, func(b *bench) {
			for range 3 {
				b.Expect(b.js.Publish(b.t.Context(), "curl.result.content.ns.cm.k", nil)).Error().NotTo(gomega.HaveOccurred())
			}
			b.becomes(`oldest_message_age_seconds{consumer="writer"}`, gomega.BeNumerically(">", 2.0))
			// NATS kept the first message in a crash, although the writer had acknowledged it.
			b.Expect(b.js.Conn().Request("$JS.API.CONSUMER.RESET.CURL_RESULTS.writer", []byte(`{"seq": 2}`), time.Minute)).
				To(gomega.HaveField("Data", gomega.Not(gomega.ContainSubstring("error"))))
			b.Expect(b.take(pipeline.Results, pipeline.WriterConsumer).DoubleAck(b.t.Context())).To(gomega.Succeed())
		}, gomega.BeNumerically("<", 2.0)},
		"consumer_present": {`consumer_present{consumer="fetcher"}`, func(b *bench) {
			b.Expect(b.js.DeleteConsumer(b.t.Context(), pipeline.Requests, pipeline.FetcherConsumer)).To(gomega.Succeed())
		}, 0.0},
		"consumer_paused": {`consumer_paused{consumer="fetcher"}`, func(b *bench) {
			_, err := b.js.PauseConsumer(b.t.Context(), pipeline.Requests, pipeline.FetcherConsumer, time.Now().Add(time.Hour))
			b.Expect(err).NotTo(gomega.HaveOccurred())
		}, 1.0},
		"timers_messages": {"timers_messages", func(b *bench) {
			seq := b.want("cm")
			due := &v1.Due{Want: &v1.Want{Namespace: "default", Name: "cm", Key: "k"}, WantSequence: seq}
			b.Expect(b.client.SetTimer(b.t.Context(), due, time.Now().Add(time.Hour))).Error().NotTo(gomega.HaveOccurred())
		}, 1.0},
		"stream_messages":         {`stream_messages{stream="CURL_REQUESTS"}`, want, 1.0},
		"stream_bytes":            {`stream_bytes{stream="CURL_REQUESTS"}`, want, positive},
		"stream_limit_bytes":      {`stream_limit_bytes{stream="CURL_RESULTS"}`, nothing, float64(4 << 30)},
		"stream_limit_bytes ":     {`stream_limit_bytes{stream="CURL_FAILURES"}`, nothing, float64(1 << 30)},
		"stream_replicas":         {`stream_replicas{stream="CURL_RESULTS"}`, nothing, 1.0},
		"stream_current_replicas": {`stream_current_replicas{stream="CURL_RESULTS"}`, nothing, 1.0},
	}
}

func TestEachMetricChanges(t *testing.T) {
	for name, m := range movements() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natstest.Options{}).run()
			m.do(b)
			b.becomes(m.series, m.value)
		})
	}
}

func TestEveryMetricHasATest(t *testing.T) {
	b := newBench(t, natstest.Options{}).run()
	var named []string
	for name := range movements() {
		named = append(named, "curlmethat_pipeline_"+name)
	}
	for _, d := range b.set.Definitions() {
		b.Expect(named).To(gomega.ContainElement(d.Name))
	}
	b.want("cm")
	b.becomes(`backlog_messages{consumer="fetcher"}`, 1.0)
	b.Expect(suitetest.MetricProblems(b.registry, b.set.Definitions())).To(gomega.BeEmpty())
}

func TestUnknownStateHasNoSeries(t *testing.T) {
	b := newBench(t, natstest.Options{}).run()
	b.server.Stop()
	b.becomes("up", 0.0)
	b.Expect(suitetest.Metrics(b.registry)).To(gomega.HaveLen(1), "only up")
	b.Expect(b.server.Start()).To(gomega.Succeed())
	b.becomes("up", 1.0)
	b.stop()
	b.Expect(suitetest.Metrics(b.registry)).To(gomega.BeEmpty(), "another watcher exports them")
}

func TestReplicasOfACluster(t *testing.T) {
	servers, _ := natstest.Cluster(t)
	js := natstest.Connect(t, servers[0])
	b := &bench{
		WithT: gomega.NewWithT(t), t: t, registry: prometheus.NewRegistry(), js: js,
		client: pipeline.NewClient(js),
	}
	b.SetDefaultEventuallyTimeout(20 * time.Second)
	b.set = metric.New(b.registry, "pipeline")
	b.Eventually(func() error {
		_, err := pipeline.Ensure(t.Context(), js, pipeline.Topology{Replicas: 3})
		return err
	}).Should(gomega.Succeed())
	b.run()
	b.becomes(`stream_current_replicas{stream="CURL_RESULTS"}`, 3.0)
	servers[2].Stop()
	b.becomes(`stream_current_replicas{stream="CURL_RESULTS"}`, 2.0)
	b.becomes(`stream_replicas{stream="CURL_RESULTS"}`, 3.0)
}

func TestMissingStreams(t *testing.T) {
	b := newBench(t, natstest.Options{}).run()
	b.Expect(b.js.DeleteStream(t.Context(), pipeline.Requests)).To(gomega.Succeed())
	b.becomes(`consumer_present{consumer="fetcher"}`, 0.0)
	b.becomes("up", 1.0)
	b.Eventually(func() error {
		series, err := suitetest.Metrics(b.registry)
		if _, still := series[`curlmethat_pipeline_stream_messages{stream="CURL_REQUESTS"}`]; still {
			err = errors.New("the stream still has a series")
		}
		return err
	}).Should(gomega.Succeed())
}
