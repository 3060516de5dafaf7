package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

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
	Bodies  int `json:"bodies"`
	Results int `json:"results"`
	// Stored is the number of messages that JetStream stored.
	Stored float64            `json:"messagesPerRefresh"`
	CPU    map[string]float64 `json:"cpuMillisecondsPerRefresh"`
}

// origin responds with 304 to a request with the ETag of its only body.
type origin struct {
	*httptest.Server
	bodies, unmodified atomic.Int64
	// content and failures count messages to the writer.
	content, failures *atomic.Int64
}

// ServeHTTP responds to a GET.
func (h *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", etag)
	if r.Header.Get("If-None-Match") == etag {
		h.unmodified.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.bodies.Add(1)
	_, _ = w.Write([]byte("body"))
}

// measureRefresh measures one fetcher without Kubernetes.
func measureRefresh(ctx context.Context, o options, report func(any)) {
	s := &system{}
	defer s.stop(ctx)
	s.init(ctx, o.bin)
	host := &origin{content: s.count(pipeline.KindContent), failures: s.count(pipeline.KindFailure)}
	host.Server = httptest.NewServer(host)
	defer host.Close()
	// All keys are on one host, whose limits are not measured.
	s.fetcher(ctx, "--per-host=1024", "--namespace-share=1")
	o.progress("publishing %d wants that are refreshed every %s", o.refresh, refreshEvery)
	host.fill(ctx, s, o.refresh)
	o.progress("all have their body, counting refreshes for %s", time.Duration(o.rounds)*refreshEvery)
	report(host.count(ctx, s, o))
}

// fill publishes the wants, and waits for the first body and the first refresh of each key.
func (h *origin) fill(ctx context.Context, s *system, count int) {
	client := pipeline.NewClient(s.js)
	check(inParallel(ctx, count, func(ctx context.Context, n int) error {
		_, err := client.PublishWant(ctx, &v1.Want{
			Namespace: fmt.Sprint("namespace-", n%100), Name: fmt.Sprint("configmap-", n), Key: "mydata",
			Uid: fmt.Sprintf("12345678-1234-1234-1234-%012d", n), Epoch: s.epoch,
			Url: fmt.Sprint(h.URL, "/", n), Refresh: durationpb.New(refreshEvery),
		}, 0)
		return err
	}))
	mustAwait(ctx, "all keys have a body", fillTimeout, func() bool {
		s.check()
		return h.bodies.Load() >= int64(count)
	})
	check(pause(ctx, refreshEvery))
}

// snapshot has the counters at one moment.
type snapshot struct {
	at                          time.Time
	bodies, unmodified, results int64
	stored                      uint64
	used                        usages
}

func (h *origin) read(ctx context.Context, s *system) (r snapshot) {
	for _, name := range []string{pipeline.Requests, pipeline.Results} {
		r.stored += must(s.js.Stream(ctx, name)).CachedInfo().State.LastSeq
	}
	r.used = s.used()
	r.at, r.bodies, r.unmodified = time.Now(), h.bodies.Load(), h.unmodified.Load()
	r.results = h.content.Load() + h.failures.Load()
	return r
}

// count compares snapshots before and after some refreshes.
func (h *origin) count(ctx context.Context, s *system, o options) refresh {
	before := h.read(ctx, s)
	check(pause(ctx, time.Duration(o.rounds)*refreshEvery))
	s.check()
	after := h.read(ctx, s)
	count := int(after.unmodified - before.unmodified)
	return refresh{
		Keys: o.refresh, PerSecond: float64(count) / after.at.Sub(before.at).Seconds(),
		Bodies: int(after.bodies - before.bodies), Results: int(after.results - before.results),
		Stored: float64(after.stored-before.stored) / float64(max(count, 1)),
		CPU:    after.used.cpuSince(before.used, count),
	}
}
