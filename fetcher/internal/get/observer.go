package get

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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

// shownHeaders are the headers of a response that decide, or that help to understand it.
var shownHeaders = []string{
	"Location", "Retry-After", "Content-Type", "Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Date",
	"Www-Authenticate", "Server",
}

// show shows a hop to the observer, if it wants to see hops. The answer may be nil.
func (x *exchange) show(request *http.Request, u *url.URL, secrets credentials, answer *http.Response) {
	if x.request.Observer == nil || x.request.Observer.Hop == nil {
		return
	}
	sent, received := "GET "+hideQuery(textOf(u)), "no response"
	plain := x.headers(credentials{from: secrets.from})
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
