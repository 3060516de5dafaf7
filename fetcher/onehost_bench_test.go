package fetcher_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/fetcher"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
	"github.com/kv8s/curl-me-that/proto/process"
)

// BenchmarkOneHost measures many URLs of one host by its latency: the used fraction of its slots,
// and the number of parked messages for each GET. The simulation of package throttle has further
// figures.
func BenchmarkOneHost(b *testing.B) {
	for _, bench := range []struct {
		latency time.Duration
		wants   int
	}{{10 * time.Millisecond, 3_000}, {100 * time.Millisecond, 3_000}, {time.Second, 300}} {
		b.Run(fmt.Sprintf("%d after %s", bench.wants, bench.latency), func(b *testing.B) {
			for range b.N {
				took, parks := oneHost(b, bench.latency, bench.wants)
				capacity := float64(fetcher.DefaultConfig().Throttle.PerHost) * took.Seconds()
				b.ReportMetric(float64(bench.wants)*bench.latency.Seconds()/capacity, "used")
				b.ReportMetric(float64(parks)/float64(bench.wants), "parks/GET")
				b.ReportMetric(float64(bench.wants)/took.Seconds(), "GET/s")
			}
		})
	}
}

func oneHost(b *testing.B, latency time.Duration, wants int) (took time.Duration, parks int) {
	b.Helper()
	broker, js, epoch := pipelinetest.Ensured(b, pipeline.Topology{})
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(latency)
		fmt.Fprint(w, r.URL.Path)
	}))
	defer host.Close()

	done := make(chan struct{})
	contents := 0
	sub, err := js.Conn().Subscribe("curl.result.content.>", func(*nats.Msg) {
		if contents++; contents == wants {
			close(done)
		}
	})
	must(b, err)
	defer func() { _ = sub.Unsubscribe() }()
	client := pipeline.NewClient(js)
	for i := range wants {
		_, err := client.PublishWant(b.Context(), &v1.Want{
			Namespace: "default", Name: fmt.Sprintf("cm-%d", i), Key: "k", Uid: "uid", Url: fmt.Sprintf("%s/%d", host.URL,
				i), Epoch: epoch,
		}, 0)
		must(b, err)
	}
	registry := prometheus.NewRegistry()
	began := time.Now()
	stop := runFetcher(b, broker, registry)
	defer stop()
	<-done
	return time.Since(began), parked(b, registry)
}

// parked returns the number of parked messages of a fetcher.
func parked(b *testing.B, registry *prometheus.Registry) int {
	b.Helper()
	families, err := registry.Gather()
	must(b, err)
	n := 0
	for _, family := range families {
		if family.GetName() != "curlmethat_fetcher_parked_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			n += int(m.GetCounter().GetValue())
		}
	}
	return n
}

func runFetcher(b *testing.B, broker *natstest.Server, registry *prometheus.Registry) (stop func()) {
	b.Helper()
	nc, err := broker.Connect()
	must(b, err)
	js, err := jetstream.New(nc)
	must(b, err)
	config := fetcher.DefaultConfig()
	config.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	health := process.NewHealth()
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		rt := &process.Runtime{Log: zerolog.Nop(), Health: health, Metrics: registry, NATS: nc, JetStream: js}
		if err := fetcher.Run(ctx, rt, config); err != nil {
			b.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
		nc.Close()
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
