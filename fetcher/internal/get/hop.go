package get

import (
	"context"
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

// hop is one request of a GET: what its connection saw, for the class of a failure, and when its phases began. Dials to
// the addresses of a name run concurrently.
type hop struct {
	observe func(Phase, time.Duration)

	// responded reports whether a byte of a response was received.
	responded bool
	// asked is the detail of a rejection after the server asked for a client certificate.
	asked v1.FailureDetail
	wire  *wire

	// begun has the start time of each dial by address, and of the lookup by "".
	begun sync.Map
}

// newHop returns a hop of the GET with this context.
func (c *Client) newHop(ctx context.Context) *hop {
	return &hop{observe: func(p Phase, d time.Duration) { c.deps.Observe(ctx, p, d) }}
}

// trace returns the hooks for the phases of a dial.
func (h *hop) trace() *httptrace.ClientTrace {
	begin := func(addr string) { h.begun.Store(addr, time.Now()) }
	end := func(p Phase, addr string, err error) {
		start, _ := h.begun.Load(addr)
		if at, ok := start.(time.Time); ok && err == nil {
			h.observe(p, time.Since(at))
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
	return h.asked == failure.ClientCertificate || h.asked != 0 && alert(cause) != ""
}

type hopKey struct{}

// WithHops returns a context with which Do reports each request and its response, for a person who looks for the
// cause of a failure: without queries and values of credentials, but with text of the server.
func WithHops(ctx context.Context, report func(sent, received string)) context.Context {
	return context.WithValue(ctx, hopKey{}, report)
}

// shownHeaders are the headers of a response that decide, or that help to understand it.
var shownHeaders = []string{
	"Location", "Retry-After", "Content-Type", "Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Date",
	"Www-Authenticate", "Server",
}

// report reports a hop, if anyone asked. The answer may be nil.
func (x *exchange) report(request *http.Request, u *url.URL, answer *http.Response) {
	report, asked := request.Context().Value(hopKey{}).(func(sent, received string))
	if !asked {
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
	report(sent, received)
}

// hideQuery replaces a query by a mark. Unlike weburl.WithoutQuery it takes any text, such as a relative Location.
func hideQuery(text string) string {
	shown, query, _ := strings.Cut(text, "?")
	if query != "" {
		shown += "?…"
	}
	return shown
}
