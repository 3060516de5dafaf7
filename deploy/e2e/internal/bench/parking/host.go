package parking

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// errTime: the time for a host is over.
var errTime = errors.New("the time is over")

// host answers after a time, and knows what became of the keys that ask for it.
type host struct {
	server  *httptest.Server
	latency time.Duration

	mu sync.Mutex
	// began is when the figures begin, and since up to when busy is known: the
	// time for which slots were in use, summed over slots.
	began, since time.Time
	inUse        int
	busy         time.Duration
	// parks are how often keys that wait were put off, and done those of keys
	// that are filled.
	parks       map[pipeline.Key]int
	gets, done  int
	filledMoved chan struct{} // closed at the next filled key
}

func newHost(latency time.Duration) *host {
	h := &host{latency: latency, parks: map[pipeline.Key]int{}, filledMoved: make(chan struct{})}
	h.server = httptest.NewServer(h)
	return h
}

// URL of the host.
func (h *host) URL() string { return h.server.URL }

// Close ends the host with the requests that wait.
func (h *host) Close() {
	h.server.CloseClientConnections()
	h.server.Close()
}

// ServeHTTP sends the headers at once, for which a fetcher waits less long, and
// the body after the latency.
func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.use(1)
	defer h.use(-1)
	_ = http.NewResponseController(w).Flush() // a client that is gone shows below
	select {
	case <-time.After(h.latency):
		_, _ = w.Write([]byte("as asked"))
	case <-r.Context().Done():
	}
}

// use counts slots that are in use.
func (h *host) use(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addBusy()
	h.inUse += n
}

func (h *host) addBusy() {
	now := time.Now()
	h.busy += time.Duration(h.inUse) * now.Sub(h.since)
	h.since = now
}

// begin begins the figures.
func (h *host) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began, h.since = time.Now(), time.Now()
	h.busy, h.gets, h.done = 0, 0, 0
}

// parked notes that a key was put off.
func (h *host) parked(key pipeline.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parks[key]++
}

// filled notes that a key has its body.
func (h *host) filled(key pipeline.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gets++
	h.done += h.parks[key]
	close(h.filledMoved)
	h.filledMoved = make(chan struct{})
}

// await waits until so many keys are filled; the error is errTime when that
// takes longer than limit.
func (h *host) await(ctx context.Context, keys int, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTime)
	defer cancel()
	for {
		h.mu.Lock()
		gets, moved := h.gets, h.filledMoved
		h.mu.Unlock()
		if gets >= keys {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// figures returns how many keys were filled, what part of the slots was in use,
// and how often each of those keys was put off.
func (h *host) figures() (gets int, used, parks float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addBusy()
	used = float64(h.busy) / float64(slots*h.since.Sub(h.began))
	return h.gets, used, float64(h.done) / float64(max(1, h.gets))
}
