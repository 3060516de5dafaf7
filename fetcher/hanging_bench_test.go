package fetcher_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
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

// BenchmarkBesideAHangingHost measures what 500 URLs of a host that never
// answers cost 500 URLs of one that answers at once: the 99th percentile of the
// time from want to result, with and without them, and the ratio.
func BenchmarkBesideAHangingHost(b *testing.B) {
	for range b.N {
		alone := p99(b, 0)
		beside := p99(b, 500)
		b.ReportMetric(float64(alone.Milliseconds()), "ms-p99-alone")
		b.ReportMetric(float64(beside.Milliseconds()), "ms-p99-beside")
		b.ReportMetric(float64(beside)/float64(alone), "ratio")
	}
}

func p99(b *testing.B, hanging int) time.Duration {
	b.Helper()
	const n = 500
	broker, js, epoch := pipelinetest.Ensured(b, pipeline.Topology{})

	instant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	defer instant.Close()
	silent, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	must(b, err)
	defer silent.Close()

	stop := runFetcher(b, broker, prometheus.NewRegistry())
	defer stop()
	asked := make([]time.Time, n)
	done := results(b, broker, asked)
	client := pipeline.NewClient(js)
	want := func(name, url string) {
		_, err := client.PublishWant(b.Context(), &v1.Want{Namespace: "default", Name: name, Key: "k", Uid: "uid", Url: url, Epoch: epoch}, 0)
		must(b, err)
	}
	for i := range hanging {
		want(fmt.Sprintf("hanging-%d", i), fmt.Sprintf("http://%s/%d", silent.Addr(), i))
	}
	for i := range n {
		asked[i] = time.Now()
		want(fmt.Sprintf("instant-%d", i), fmt.Sprintf("%s/%d", instant.URL, i))
	}
	took := <-done
	slices.Sort(took)
	return took[n*99/100]
}

// results collects how long each instant URL took, until all have been fetched.
func results(b *testing.B, broker *natstest.Server, asked []time.Time) <-chan []time.Duration {
	b.Helper()
	nc, err := broker.Connect()
	must(b, err)
	b.Cleanup(nc.Close)
	took := make([]time.Duration, 0, len(asked))
	done := make(chan []time.Duration, 1)
	_, err = nc.Subscribe("curl.result.content.>", func(m *nats.Msg) {
		_, key, err := pipeline.ParseSubject(m.Subject)
		var i int
		if err != nil {
			return
		}
		if _, err := fmt.Sscanf(key.Name, "instant-%d", &i); err != nil {
			return
		}
		took = append(took, time.Since(asked[i]))
		if len(took) == len(asked) {
			done <- took
		}
	})
	must(b, err)
	must(b, nc.Flush())
	return done
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
