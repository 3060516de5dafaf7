package get

import (
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// Phase is a phase of a GET.
type Phase string

// Phases of a GET.
const (
	phaseDNS       Phase = "dns"        // the lookup of a name
	phaseConnect   Phase = "connect"    // the opening of one TCP connection
	phaseTLS       Phase = "tls"        // one handshake
	phaseFirstByte Phase = "first_byte" // from the request to the first byte of the response
	phaseTransfer  Phase = "transfer"   // from the headers to the end of the body
	phaseTotal     Phase = "total"      // the whole GET with all redirects, good or bad
)

// Phases returns all phases.
func Phases() []Phase {
	return []Phase{phaseDNS, phaseConnect, phaseTLS, phaseFirstByte, phaseTransfer, phaseTotal}
}

// stopwatch measures the phases of one hop. http.Transport calls the hooks from the goroutines of its
// dials, which may outlive the hop.
type stopwatch struct {
	observe func(Phase, time.Duration)

	// responded reports whether a byte of a response was received.
	responded atomic.Bool
	conn      atomic.Pointer[deferredConn]

	mu    sync.Mutex
	begun map[moment]time.Time
}

// moment is the start of a phase. Connections to several addresses may be opened concurrently.
type moment struct {
	phase Phase
	addr  string
}

func newStopwatch(observe func(Phase, time.Duration)) *stopwatch {
	return &stopwatch{observe: observe, begun: map[moment]time.Time{}}
}

func (s *stopwatch) trace() *httptrace.ClientTrace {
	dns, handshake, request := moment{phase: phaseDNS}, moment{phase: phaseTLS}, moment{phase: phaseFirstByte}
	return &httptrace.ClientTrace{
		DNSStart:          func(httptrace.DNSStartInfo) { s.begin(dns) },
		DNSDone:           func(info httptrace.DNSDoneInfo) { s.end(dns, info.Err) },
		ConnectStart:      func(_, addr string) { s.begin(moment{phaseConnect, addr}) },
		ConnectDone:       func(_, addr string, err error) { s.end(moment{phaseConnect, addr}, err) },
		TLSHandshakeStart: func() { s.begin(handshake) },
		TLSHandshakeDone:  func(_ tls.ConnectionState, err error) { s.end(handshake, err) },
		GotConn: func(info httptrace.GotConnInfo) {
			conn, _ := info.Conn.(*deferredConn)
			s.conn.Store(conn)
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { s.begin(request) },
		GotFirstResponseByte: func() {
			s.end(request, nil)
			s.responded.Store(true)
		},
	}
}

// connectionEnded reports whether the connection has ended.
func (s *stopwatch) connectionEnded() bool {
	conn := s.conn.Load()
	return conn != nil && conn.ended.Load()
}

func (s *stopwatch) begin(m moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[m] = time.Now()
}

// end observes a phase that was started, unless it failed.
func (s *stopwatch) end(m moment, err error) {
	s.mu.Lock()
	start, ok := s.begun[m]
	s.mu.Unlock()
	if ok && err == nil {
		s.observe(m.phase, time.Since(start))
	}
}
