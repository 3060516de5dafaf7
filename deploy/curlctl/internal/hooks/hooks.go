// Package hooks fetches wants when a web server says that something changed. It never interprets a payload.
package hooks

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

const (
	// every is the minimum time between two refetches by one hook, and timeout the maximum time of one.
	every, timeout = 10 * time.Second, 20 * time.Second
	// maxBody is the maximum size of a payload in bytes.
	maxBody = 1 << 20
)

// outcome is the label of a request in the metrics.
type outcome string

const (
	accepted     outcome = "accepted"
	merged       outcome = "merged"
	unmatched    outcome = "unmatched"
	unauthorized outcome = "unauthorized" // or an unknown hook
	oversized    outcome = "oversized"
	incomplete   outcome = "incomplete"
	malformed    outcome = "malformed"
	unavailable  outcome = "unavailable"
)

// statuses has the HTTP status of each outcome.
var statuses = map[outcome]int{
	accepted: http.StatusAccepted, merged: http.StatusAccepted, unmatched: http.StatusNoContent,
	unauthorized: http.StatusUnauthorized, oversized: http.StatusRequestEntityTooLarge,
	incomplete: http.StatusBadRequest, unavailable: http.StatusServiceUnavailable,
}

// Refetch requests the fetch of all wants whose URL begins with a prefix, and returns their number. If they were
// requested with that id before, it requests nothing and returns already.
type Refetch func(ctx context.Context, prefix string, id int64) (matched int, already bool, err error)

// Server serves hooks.
type Server struct {
	refetch  Refetch
	log      zerolog.Logger
	hooks    atomic.Pointer[map[string]Hook]
	requests *prometheus.CounterVec
	keys     prometheus.Counter

	mu   sync.Mutex
	runs map[string]run
	// begun has the connections with a request that no handler has got.
	begun map[string]bool
}

// run is the time at which the next refetch by a hook may begin, and whether one is planned.
type run struct {
	next    time.Time
	planned bool
}

// New returns a server of hooks with registered metrics.
func New(hooks map[string]Hook, refetch Refetch, log zerolog.Logger, metrics *metric.Set) *Server {
	s := &Server{
		refetch: refetch, log: log, runs: map[string]run{}, begun: map[string]bool{},
		requests: metrics.Counters("requests_total", "Requests to the receiver of hooks.", metric.Of("outcome", accepted,
			merged, unmatched, unauthorized, oversized, incomplete, malformed, unavailable)),
		keys: metrics.Counter("keys_total", "Keys whose fetch a hook requested."),
	}
	s.Use(hooks)
	return s
}

// Use replaces the hooks.
func (s *Server) Use(hooks map[string]Hook) { s.hooks.Store(&hooks) }

// Serve serves hooks on a listener until ctx is done.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return process.Serve(ctx, listener, s, func(server *http.Server) {
		server.ConnState = func(c net.Conn, state http.ConnState) { s.track(c.RemoteAddr().String(), state) }
	})
}

// track counts requests that are too broken for a handler.
func (s *Server) track(address string, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateClosed && s.begun[address] {
		s.requests.WithLabelValues(string(malformed)).Inc()
	}
	delete(s.begun, address)
	if state == http.StateActive {
		s.begun[address] = true
	}
}

// ServeHTTP serves POST /hooks/NAME.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.track(r.RemoteAddr, http.StateIdle)
	result := unauthorized
	name, isPath := strings.CutPrefix(r.URL.Path, "/hooks/")
	if hook, found := (*s.hooks.Load())[name]; found && isPath && r.Method == http.MethodPost {
		if result = hook.authenticate(w, r); result == accepted {
			result = s.accept(hook) //nolint:contextcheck // the refetch outlives the request
		}
	}
	s.requests.WithLabelValues(string(result)).Inc()
	w.WriteHeader(statuses[result])
}

// accept refetches, unless it is too early. Then the hook is merged into the next refetch.
func (s *Server) accept(hook Hook) outcome {
	s.mu.Lock()
	now, state := time.Now(), s.runs[hook.Name]
	early := state.next.After(now)
	if early {
		s.plan(hook, state.next)
	} else {
		s.runs[hook.Name] = run{next: now.Add(every), planned: state.planned}
	}
	s.mu.Unlock()
	if early {
		return merged
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout) // not that of a sender who may leave
	defer cancel()
	window := now.Truncate(every)
	matched, already, err := s.refetch(ctx, hook.URL, window.Unix())
	if err != nil || already { // by another replica, perhaps before the change
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.plan(hook, window.Add(every))
			return merged
		}
		s.log.Error().Err(err).Str("hook", hook.Name).Msg("cannot refetch, trying again in 10 s")
		s.plan(hook, time.Now().Add(every))
		return unavailable
	}
	if matched == 0 {
		return unmatched
	}
	s.keys.Add(float64(matched))
	s.log.Info().Str("hook", hook.Name).Int("keys", matched).Msg("refetching")
	return accepted
}

// plan plans the next refetch by a hook, unless one is planned. It needs the lock.
func (s *Server) plan(hook Hook, at time.Time) {
	if !s.runs[hook.Name].planned {
		s.runs[hook.Name] = run{next: at, planned: true}
		time.AfterFunc(time.Until(at), func() {
			s.mu.Lock()
			s.runs[hook.Name] = run{}
			s.mu.Unlock()
			if hook, found := (*s.hooks.Load())[hook.Name]; found {
				s.accept(hook)
			}
		})
	}
}
