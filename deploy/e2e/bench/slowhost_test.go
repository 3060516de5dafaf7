package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// window is the minimum duration of a case. It also lasts for at least three responses.
	window = 15 * time.Second
	// slots is the number of slots per host and fetcher. One namespace gets all but one of them.
	slots = 8
)

// slowHost is one case and its figures.
type slowHost struct {
	Latency  float64 `json:"latencySeconds"`
	Fetchers int     `json:"fetchers"`
	// Keys is the number of waiting keys, Gets the number of GETs that published a body, and Seconds the
	// observed time.
	Keys    int     `json:"keys"`
	Gets    int     `json:"gets"`
	Seconds float64 `json:"seconds"`
	// Used is the fraction of all slots in use. Timers are messages that park keys.
	Used         float64 `json:"slotsInUseRatio"`
	TimersPerGet float64 `json:"timersPerGet"`
	// Cores is the processor time of each program per second.
	Cores map[string]float64 `json:"cpuSecondsPerSecond"`
}

// LATENCIES and FETCHERS select the cases. Each has its own NATS and fetchers.
var _ = Describe("slow-host: the slots in use of a slow host, and the timers for each GET,", func() {
	for latency := range strings.FieldsSeq(cmp.Or(os.Getenv("LATENCIES"), "1ms 100ms 1s 10s")) {
		for fetchers := range strings.FieldsSeq(cmp.Or(os.Getenv("FETCHERS"), "1 2 4 8")) {
			It("with a latency of "+latency+" and fetchers: "+fetchers, func(ctx SpecContext) {
				latency := suitetest.Must(time.ParseDuration(latency))
				row := &slowHost{
					Latency: latency.Seconds(), Fetchers: suitetest.Must(strconv.Atoi(fetchers)),
					Keys: int(world.Number("N", "16000")), // that wait for the host
				}
				row.measure(ctx, latency)
				printed(row)
			})
		}
	}
})

func (row *slowHost) measure(ctx context.Context, latency time.Duration) {
	GinkgoHelper()
	s := start(ctx)
	h := &host{latency: latency, timers: s.count(pipeline.KindTimer), gets: s.count(pipeline.KindContent)}
	h.server = httptest.NewServer(h)
	DeferCleanup(h.server.Close)
	DeferCleanup(h.server.CloseClientConnections)
	for range row.Fetchers {
		s.fetcher(ctx, "--timeout=20s")
	}
	known := 4 * row.Fetchers
	h.ask(ctx, s, "known", known)
	Eventually(ctx, h.gets.Load).WithTimeout(time.Minute).Should(BeNumerically(">=", known), "all fetchers know the host")
	before := s.used()
	h.reset()
	h.ask(ctx, s, "key", row.Keys)
	// The case ends early if all keys are fetched.
	for until := time.Now().Add(max(window, 3*latency)); time.Now().Before(until) && h.gets.Load() < int64(row.Keys); {
		<-time.After(10 * time.Millisecond)
	}
	row.read(h, s.used().cpuSince(before, 1))
}

func (row *slowHost) read(h *host, cpu map[string]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(0)
	took := h.since.Sub(h.began).Seconds()
	row.Seconds, row.Gets = took, int(h.gets.Load())
	row.Used = h.busy.Seconds() / (slots * float64(row.Fetchers) * took)
	row.TimersPerGet = float64(h.timers.Load()) / float64(max(1, row.Gets))
	row.Cores = map[string]float64{}
	for name, ms := range cpu {
		row.Cores[name] = ms / 1000 / took
	}
}

// host responds after its latency, and measures the number of concurrent GETs.
type host struct {
	server  *httptest.Server
	latency time.Duration
	// gets and timers are the numbers of published bodies and of messages that park keys.
	gets, timers *atomic.Int64

	mu sync.Mutex
	// began is the start of the measurement. busy is the time in use until since, summed over slots.
	began, since time.Time
	inUse        int
	busy         time.Duration
}

// ServeHTTP sends the headers at once, since a fetcher waits 5 s for them, and the body
// after the latency.
func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.change(1)
	defer h.change(-1)
	_ = http.NewResponseController(w).Flush() // the client may be gone
	select {
	case <-time.After(h.latency):
		_, _ = w.Write([]byte("body"))
	case <-r.Context().Done():
	}
}

func (h *host) change(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(n)
}

// count adds the time until now to busy, and then n to inUse. The caller holds the lock.
func (h *host) count(n int) {
	now := time.Now()
	h.busy += time.Duration(h.inUse) * now.Sub(h.since)
	h.since = now
	h.inUse += n
}

// reset starts the measurement.
func (h *host) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began, h.since = time.Now(), time.Now()
	h.busy = 0
	h.gets.Store(0)
	h.timers.Store(0)
}

// ask publishes the wants of some keys in one namespace.
func (h *host) ask(ctx context.Context, s *system, name string, count int) {
	GinkgoHelper()
	inParallel(count, func(n int) error {
		name := fmt.Sprint(name, "-", n)
		_, err := pipeline.NewClient(s.js).PublishWant(ctx, &v1.Want{
			Namespace: "default", Name: name, Key: "k", Uid: "uid", Epoch: s.epoch, Url: h.server.URL + "/" + name,
		}, 0)
		return err
	})
}
