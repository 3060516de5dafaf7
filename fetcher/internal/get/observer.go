package get

import (
	"context"
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
	// asked is the detail of a rejection after the server asked for a client certificate.
	asked v1.FailureDetail
	wire  *wire

	// begun has the starts of dials by address, and that of the lookup by "".
	begun sync.Map
}

// stopwatch returns one for a hop of the GET with this context.
func (c *Client) stopwatch(ctx context.Context) *stopwatch {
	return &stopwatch{observe: func(p Phase, d time.Duration) { c.deps.Observe(ctx, p, d) }}
}

// trace returns the hooks for the phases of a dial.
func (s *stopwatch) trace() *httptrace.ClientTrace {
	begin := func(addr string) { s.begun.Store(addr, time.Now()) }
	end := func(p Phase, addr string, err error) {
		start, _ := s.begun.Load(addr)
		if at, ok := start.(time.Time); ok && err == nil {
			s.observe(p, time.Since(at))
		}
	}
	return &httptrace.ClientTrace{
		DNSStart:     func(httptrace.DNSStartInfo) { begin("") },
		DNSDone:      func(info httptrace.DNSDoneInfo) { end(phaseDNS, "", info.Err) },
		ConnectStart: func(_, addr string) { begin(addr) },
		ConnectDone:  func(_, addr string, err error) { end(phaseConnect, addr, err) },
	}
}

// wantsCertificate reports whether a connection without a response ended because the server asked for
// another client certificate than it got. Not every server sends an alert.
func (s *stopwatch) wantsCertificate(cause error) bool {
	return s.asked == v1.FailureDetail_FAILURE_DETAIL_CLIENT_CERTIFICATE || s.asked != 0 && alert(cause) != ""
}
