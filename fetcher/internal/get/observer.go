package get

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
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

// stopwatch measures the phases of one hop. Dials to the addresses of a name run concurrently.
type stopwatch struct {
	observe func(Phase, time.Duration)

	// responded reports whether a byte of a response was received.
	responded bool
	// asked is the detail of a refusal after the server asked for a client certificate.
	asked v1.FailureDetail
	wire  *wire

	mu    sync.Mutex
	begun map[moment]time.Time
}

// moment is the start of a phase. Connections to several addresses may be opened concurrently.
type moment struct {
	phase Phase
	addr  string
}

// stopwatch returns one for a hop of the GET with this context.
func (c *Client) stopwatch(ctx context.Context) *stopwatch {
	return newStopwatch(func(p Phase, d time.Duration) { c.deps.Observe(ctx, p, d) })
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
		WroteRequest:      func(httptrace.WroteRequestInfo) { s.begin(request) },
		GotFirstResponseByte: func() {
			s.end(request, nil)
			s.responded = true
		},
	}
}

// wantsCertificate reports whether a connection without a response ended because the server asked for
// another client certificate than it got. Not every server sends an alert.
func (s *stopwatch) wantsCertificate(cause error) bool {
	return s.asked == v1.FailureDetail_FAILURE_DETAIL_CLIENT_CERTIFICATE || s.asked != 0 && alert(cause) != ""
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
