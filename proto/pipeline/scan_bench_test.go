package pipeline_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
)

var scanWants = flag.Int("scan-wants", 50_000, "wants that BenchmarkScan reads")

// BenchmarkScan reads all wants of a large installation. The number of requests decides, because
// the server counts the remaining messages for each.
func BenchmarkScan(b *testing.B) {
	_, js, _ := pipelinetest.Ensured(b, pipeline.Topology{})
	fillWants(b, js, *scanWants)
	client := pipeline.NewClient(js)
	for b.Loop() {
		read := 0
		for _, err := range client.Scan(b.Context(),
			pipeline.Range{Stream: pipeline.Requests, Subject: pipeline.KindWant.Subjects("", "")}) {
			if err != nil {
				b.Fatal(err)
			}
			read++
		}
		if read != *scanWants {
			b.Fatalf("read %d of %d wants", read, *scanWants)
		}
	}
	b.ReportMetric(float64(*scanWants)*float64(b.N)/b.Elapsed().Seconds(), "wants/s")
}

func fillWants(b *testing.B, js jetstream.JetStream, n int) {
	b.Helper()
	for i := range n {
		k := pipelinetest.Numbered(i)
		data, err := proto.Marshal(pipelinetest.Want(k, "https://a.example/"+k.Name))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := js.PublishAsync(k.Want(), data, jetstream.WithStallWait(10*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		b.Fatal("wants were not published in a minute")
	}
}
