package get

import (
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/rule"
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

// Observer is told about a GET. Each function may be nil.
type Observer struct {
	// Phase receives the duration of each phase. Calls may overlap. A failed phase counts only towards the total.
	Phase func(Phase, time.Duration)
	// Decoded receives how long a compressed body was decoded, even a bad one. A server can make a megabyte take 0.1 s
	// for each layer.
	Decoded func(time.Duration)
	// Hop receives each request and its response, for a person who looks for the cause of a failure: without queries
	// and values of credentials, but with text of the server.
	Hop func(sent, received string)
}

func (o *Observer) phase(p Phase, d time.Duration) {
	if o != nil && o.Phase != nil {
		o.Phase(p, d)
	}
}

func (o *Observer) decoded(d time.Duration) {
	if o != nil && o.Decoded != nil {
		o.Decoded(d)
	}
}

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

// shownHeaders are the headers of a response that decide, or that help to understand it.
var shownHeaders = []string{
	"Location", "Retry-After", "Content-Type", "Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Date",
	"Www-Authenticate", "Server",
}

// report reports a hop, if anyone asked. The answer may be nil.
func (x *exchange) report(request *http.Request, u *url.URL, answer *http.Response) {
	if x.request.Observer == nil || x.request.Observer.Hop == nil {
		return
	}
	sent, received := "GET "+hideQuery(textOf(u)), "no response"
	plain := x.headers(u, credentials{})
	for _, name := range slices.Sorted(maps.Keys(request.Header)) {
		value := request.Header.Get(name)
		if plain.Get(name) != value {
			value = "(hidden)"
		}
		sent += "; " + name + ": " + value
	}
	if answer != nil {
		received = strconv.Itoa(answer.StatusCode)
		for _, name := range shownHeaders {
			if value := answer.Header.Get(name); value != "" {
				received += "; " + name + ": " + rule.Shortened(hideQuery(value))
			}
		}
	}
	x.request.Observer.Hop(sent, received)
}

// hideQuery replaces a query by a mark. Unlike weburl.WithoutQuery it takes any text, such as a relative Location.
func hideQuery(text string) string {
	shown, query, _ := strings.Cut(text, "?")
	if query != "" {
		shown += "?…"
	}
	return shown
}
