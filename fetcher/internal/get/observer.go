package get

import (
	"net/http/httptrace"
	"sync"
	"time"
)

// Phase is a part of a GET, from a closed set.
type Phase string

// Phases of a GET.
const (
	// DNS: the lookup of a name.
	DNS Phase = "dns"
	// Connect: the opening of one TCP connection.
	Connect Phase = "connect"
	// TLS: one handshake.
	TLS Phase = "tls"
	// FirstByte: from the request to the first byte of the answer.
	FirstByte Phase = "first_byte"
	// Transfer: from the headers to the end of the body.
	Transfer Phase = "transfer"
	// Total: the whole GET with all redirects, good or bad.
	Total Phase = "total"
)

// Phases returns all phases.
func Phases() []Phase { return []Phase{DNS, Connect, TLS, FirstByte, Transfer, Total} }

// Observer gets the durations of the phases of GETs. It is called from several
// goroutines. A phase that failed is not observed, except in Total.
type Observer interface {
	ObservePhase(Phase, time.Duration)
}

type discard struct{}

func (discard) ObservePhase(Phase, time.Duration) {}

// stopwatch measures the phases of one hop. http.Transport calls its hooks
// from the goroutines of its dials, which may outlive the hop.
type stopwatch struct {
	observer Observer

	mu        sync.Mutex
	dns       time.Time
	connects  map[string]time.Time
	written   time.Time
	responded bool
	conn      *deferredConn
}

func (s *stopwatch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { s.set(&s.dns) },
		DNSDone: func(info httptrace.DNSDoneInfo) {
			if info.Err == nil {
				s.observe(DNS, s.get(&s.dns))
			}
		},
		ConnectStart: func(_, addr string) { s.connecting(addr) },
		ConnectDone: func(_, addr string, err error) {
			if err == nil {
				s.observe(Connect, s.connected(addr))
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conn, _ = info.Conn.(*deferredConn)
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { s.set(&s.written) },
		GotFirstResponseByte: func() {
			s.observe(FirstByte, s.get(&s.written))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.responded = true
		},
	}
}

// gotResponse reports whether a byte of an answer was received.
func (s *stopwatch) gotResponse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.responded
}

// connectionEnded reports whether the connection has come to its end.
func (s *stopwatch) connectionEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil && s.conn.ended.Load()
}

func (s *stopwatch) observe(phase Phase, start time.Time) {
	if !start.IsZero() {
		s.observer.ObservePhase(phase, time.Since(start))
	}
}

func (s *stopwatch) set(at *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*at = time.Now()
}

func (s *stopwatch) get(at *time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *at
}

func (s *stopwatch) connecting(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connects == nil {
		s.connects = map[string]time.Time{}
	}
	s.connects[addr] = time.Now()
}

func (s *stopwatch) connected(addr string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connects[addr]
}
