package origin

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Page is one URL of a site. It is safe for concurrent use.
type Page struct {
	site *Site
	path string

	mu       sync.Mutex
	is       Instruction
	sum      [sha256.Size]byte // of the body
	header   http.Header       // sent with each response
	takes    time.Duration
	held     chan struct{} // closed to release the held requests, nil without Hold
	arrivals []time.Time
	good     map[[sha256.Size]byte]struct{}

	authorized, waiting, notModified atomic.Int64
}

// ServerText is the body of error responses. It must never appear in an Event or log.
const ServerText = "the server's own words"

func newPage(s *Site, path string) *Page {
	return &Page{
		site: s, path: path, is: Instruction{Status: http.StatusNotFound}, header: http.Header{},
		good: map[[sha256.Size]byte]struct{}{},
	}
}

// URL returns the URL of the page.
func (p *Page) URL() string { return p.site.base + p.path }

// Bare returns the URL without its scheme.
func (p *Page) Bare() string { return bare(p.URL()) }

// bare returns a URL without its scheme.
func bare(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	return rest
}

// portOf returns the port of an address.
func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// Says makes the page respond with 200 and a text.
func (p *Page) Says(text string) *Page { return p.Serves([]byte(text)) }

// Serves makes the page respond with 200 and a body.
func (p *Page) Serves(body []byte) *Page {
	return p.set(func() { p.is.Status, p.is.Body = http.StatusOK, body })
}

// Fails makes the page respond with a status other than 200.
func (p *Page) Fails(status int) *Page {
	return p.set(func() { p.is.Status = status })
}

// With makes the page send a header.
func (p *Page) With(name, value string) *Page {
	return p.set(func() { p.header.Set(name, value) })
}

// Requires makes the page respond with 401 to a request without that Authorization (empty allows all).
func (p *Page) Requires(authorization string) *Page {
	return p.set(func() { p.is.Authorization = authorization })
}

// Tagged makes the page send an ETag, and respond with 304 to a request with that ETag (RFC 9110
// section 13.1.2).
func (p *Page) Tagged() *Page {
	return p.set(func() { p.is.Tagged = true })
}

// Takes delays each response.
func (p *Page) Takes(d time.Duration) *Page {
	return p.set(func() { p.takes = d })
}

// Hold holds new requests until release is called.
func (p *Page) Hold() (release func()) {
	p.set(func() {
		if p.held == nil {
			p.held = make(chan struct{})
		}
	})
	return p.Release
}

// Release lets the held requests continue.
func (p *Page) Release() {
	p.set(func() {
		if p.held != nil {
			close(p.held)
			p.held = nil
		}
	})
}

// set changes the page, also at an origin that runs elsewhere.
func (p *Page) set(change func()) *Page {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.sum = sha256.Sum256(p.is.Body)
	if p.site.remote != nil {
		p.site.remote.do(http.MethodPut, p.path, p.is, nil)
		if p.is.Status == http.StatusOK { // nobody here sees when it is served
			p.good[p.sum] = struct{}{}
		}
	}
	return p
}

// Hits returns the number of requests.
func (p *Page) Hits() int {
	if p.site.remote != nil {
		return p.site.remote.count(p.path).Hits
	}
	return len(p.Arrivals())
}

// Arrivals returns the time of each request.
func (p *Page) Arrivals() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.arrivals)
}

// Authorized returns the number of requests with credentials.
func (p *Page) Authorized() int { return int(p.authorized.Load()) }

// Waiting returns the number of held requests.
func (p *Page) Waiting() int { return int(p.waiting.Load()) }

// NotModified returns the number of responses with 304.
func (p *Page) NotModified() int {
	if p.site.remote != nil {
		return p.site.remote.count(p.path).NotModified
	}
	return int(p.notModified.Load())
}

func (p *Page) served(body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.good[sha256.Sum256(body)]
	return ok
}

// ServeHTTP counts the request and responds.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.arrivals = append(p.arrivals, time.Now())
	if r.Header.Get("Authorization") != "" {
		p.authorized.Add(1)
	}
	held, takes := p.held, p.takes
	if held != nil {
		p.waiting.Add(1)
	}
	p.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
			return
		}
	}
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
		}
		p.waiting.Add(-1)
		if r.Context().Err() != nil {
			return
		}
	}
	p.answer(w, r)
}

func (p *Page) answer(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	is, sum := p.is, p.sum
	if is.Authorization != "" && r.Header.Get("Authorization") != is.Authorization {
		is.Status = http.StatusUnauthorized
	}
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	known := is.Tagged && is.Status == http.StatusOK && r.Header.Get("If-None-Match") == tag
	switch {
	case known:
		is.Status = http.StatusNotModified
		p.notModified.Add(1)
	case is.Status == http.StatusOK:
		p.good[sum] = struct{}{}
	default:
		is.Body = []byte(ServerText)
	}
	maps.Copy(w.Header(), p.header.Clone())
	p.mu.Unlock()
	if is.Tagged && is.Status < http.StatusBadRequest {
		w.Header().Set("ETag", tag)
	}
	w.WriteHeader(is.Status)
	if !known {
		_, _ = w.Write(is.Body)
	}
}
