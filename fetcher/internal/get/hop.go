package get

import (
	"net/http/httptrace"
	"sync"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// hop is one request of a GET: what its connection saw, for the class of a failure, and when its phases began. Dials to
// the addresses of a name run concurrently.
type hop struct {
	observer *Observer

	// responded reports whether a byte of a response was received.
	responded bool
	// certificateDetail is the detail of a rejection after the server asked for a client certificate (0: it did not).
	certificateDetail v1.FailureDetail
	wire              *wire

	// begun has the start time of each dial by address, and of the lookup by "".
	begun sync.Map
}

// trace returns the hooks for the phases of a dial.
func (h *hop) trace() *httptrace.ClientTrace {
	begin := func(addr string) { h.begun.Store(addr, time.Now()) }
	end := func(p Phase, addr string, err error) {
		start, _ := h.begun.Load(addr)
		if at, ok := start.(time.Time); ok && err == nil {
			h.observer.phase(p, time.Since(at))
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
func (h *hop) wantsCertificate(cause error) bool {
	return h.certificateDetail == failure.ClientCertificate || h.certificateDetail != 0 && alert(cause) != ""
}
