package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// refreshEvery is the default minimum of the refresh interval.
	refreshEvery = 10 * time.Second
	fillTimeout  = 5 * time.Minute
	etag         = `"one"`
)

// refresh is the cost of refreshing unchanged keys.
type refresh struct {
	Keys int `json:"keys"`
	// PerSecond is Keys ÷ 10 if the fetcher keeps up.
	PerSecond float64 `json:"refreshesPerSecond"`
	// Bodies is the number of responses other than 304, and Results the number of messages to the writer. Both
	// should be 0.
	Bodies  int64 `json:"bodies"`
	Results int64 `json:"results"`
	// Stored is the number of messages that JetStream stored.
	Stored float64            `json:"messagesPerRefresh"`
	CPU    map[string]float64 `json:"cpuMillisecondsPerRefresh"`
}

// snapshot has the counters at one moment.
type snapshot struct {
	at                          time.Time
	bodies, unmodified, results int64
	stored                      uint64
	used                        usages
}

var _ = It("refresh: one fetcher refreshes unchanged keys every 10 s", func(ctx SpecContext) {
	keys, rounds := int(world.Number("N", "10000")), world.Number("ROUNDS", "3")
	s := start(ctx)
	content, failures := s.count(pipeline.KindContent), s.count(pipeline.KindFailure)
	var bodies, unmodified atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", etag)
		if r.Header.Get("If-None-Match") == etag {
			unmodified.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		bodies.Add(1)
		_, _ = w.Write([]byte("body"))
	}))
	DeferCleanup(origin.Close)
	// All keys are on one host, whose limits are not measured.
	s.fetcher(ctx, "--per-host=1024", "--namespace-share=1")

	By(fmt.Sprintf("publishing %d wants", keys))
	client := pipeline.NewClient(s.js)
	inParallel(keys, func(n int) error {
		_, err := client.PublishWant(ctx, &v1.Want{
			Namespace: fmt.Sprint("namespace-", n%100), Name: fmt.Sprint("configmap-", n), Key: "mydata",
			Uid: fmt.Sprintf("12345678-1234-1234-1234-%012d", n), Epoch: s.epoch,
			Url: fmt.Sprint(origin.URL, "/", n), Refresh: durationpb.New(refreshEvery),
		}, 0)
		return err
	})
	Eventually(ctx, bodies.Load).WithTimeout(fillTimeout).Should(BeEquivalentTo(keys), "keys with their body")
	<-time.After(refreshEvery) // the first refresh of each key

	look := func(ctx context.Context) snapshot {
		now := snapshot{used: s.used()}
		for _, name := range []string{pipeline.Requests, pipeline.Results} {
			now.stored += suitetest.Must(s.js.Stream(ctx, name)).CachedInfo().State.LastSeq
		}
		now.at, now.bodies, now.unmodified = time.Now(), bodies.Load(), unmodified.Load()
		now.results = content.Load() + failures.Load()
		return now
	}
	By("counting refreshes")
	before := look(ctx)
	for range rounds {
		<-time.After(refreshEvery)
	}
	after := look(ctx)
	count := int(after.unmodified - before.unmodified)
	printed(refresh{
		Keys: keys, PerSecond: float64(count) / after.at.Sub(before.at).Seconds(),
		Bodies: after.bodies - before.bodies, Results: after.results - before.results,
		Stored: float64(after.stored-before.stored) / float64(max(count, 1)),
		CPU:    after.used.cpuSince(before.used, count),
	})
})
