package permissions_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// load publishes so many wants and timers that each service needs many requests to read them, and
// reads them as the watcher does.
func load(ctx context.Context, b *broker) {
	GinkgoHelper()
	client := func(identity string) *pipeline.Client {
		js := suitetest.Must(jetstream.New(b.connect(identity)))
		return pipeline.NewClient(js)
	}
	watcher, fetcher := client("watcher"), client("fetcher")
	const n = 1500
	var timers []string
	for i := range n {
		want := &v1.Want{
			Namespace: "default", Name: fmt.Sprintf("cm-%04d", i), Key: "key", Uid: "uid", ResourceVersion: "1",
			Url: "https://a.example.com/", Status: strings.Repeat("x", 4<<10), Cause: v1.Cause_CAUSE_NEW,
		}
		sequence := suitetest.Must(watcher.PublishWant(ctx, want, 0))
		Expect(fetcher.SetTimer(ctx, &v1.Due{Want: want, WantSequence: sequence}, time.Now().Add(time.Hour))).Error().
			NotTo(HaveOccurred())
		timers = append(timers, pipeline.KeyOf(want).Timer())
	}
	found := 0
	Expect(watcher.LoadWants(ctx, func(pipeline.Message) error { found++; return nil })).To(Succeed())
	Expect(found).To(Equal(n))
	Expect(watcher.CountTimers(ctx)).To(BeEquivalentTo(n))
	Expect(watcher.Latest(ctx, timers[:pipeline.MaxLatest])).To(HaveLen(pipeline.MaxLatest))
}
