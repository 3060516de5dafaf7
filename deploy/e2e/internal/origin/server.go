// Package origin is a web server for tests. Specs set the response and latency of each page. Pages count
// requests and record every good body that they served.
package origin

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Server serves a Site on 127.0.0.1. It is safe for concurrent use.
type Server struct {
	*Site
	server *httptest.Server
}

// Start runs a plain HTTP server. before are middlewares.
func Start(before ...func(http.Handler) http.Handler) *Server {
	return start("http://", (*httptest.Server).Start, before...)
}

// StartTLS runs an HTTPS server with its own certificate, unless config has one. before are middlewares.
func StartTLS(config *tls.Config, before ...func(http.Handler) http.Handler) *Server {
	return start("https://", func(s *httptest.Server) { s.TLS = config; s.StartTLS() }, before...)
}

func start(scheme string, run func(*httptest.Server), before ...func(http.Handler) http.Handler) *Server {
	s := &Server{Site: NewSite("")}
	handler := http.Handler(s)
	for _, put := range before {
		handler = put(handler)
	}
	s.server = httptest.NewUnstartedServer(handler)
	s.base = scheme + "localhost:" + portOf(s.server.Listener.Addr().String())
	run(s.server)
	return s
}

// Close stops the server and releases held requests.
func (s *Server) Close() {
	s.release()
	s.server.CloseClientConnections()
	s.server.Close()
}

// Certificate returns the certificate of the server as PEM, for clients to trust.
func (s *Server) Certificate() []byte {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return b.Bytes()
}

// Address returns the host and port, with localhost as the host.
func (s *Server) Address() string { return bare(s.base) }

// Port returns the port of the server.
func (s *Server) Port() int {
	port, _ := strconv.Atoi(portOf(s.Address()))
	return port
}

// Served reports whether the server has ever responded to a GET of that URL with
// 200 and that body.
func (s *Server) Served(rawURL string, body []byte) bool {
	u, err := url.Parse(rawURL)
	if err != nil || u.Port() != strconv.Itoa(s.Port()) {
		return false
	}
	path := u.Path
	if path == "" {
		path = "/"
	}
	p := s.Find(path)
	return p != nil && p.served(body)
}

// Site is a set of pages, independent of a server. It is safe for concurrent use.
type Site struct {
	// base is the URL of the site without a path, such as http://localhost:80.
	base string

	mu    sync.Mutex
	pages map[string]*Page
}

// NewSite returns a site without pages. URLs start with base.
func NewSite(base string) *Site { return &Site{base: base, pages: map[string]*Page{}} }

// Page returns the page at a path such as /joke. At first it responds with 404.
func (s *Site) Page(path string) *Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pages[path]
	if p == nil {
		p = newPage(s, path)
		s.pages[path] = p
	}
	return p
}

// Find returns the page at a path, or nil if it does not exist.
func (s *Site) Find(path string) *Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[path]
}

// Forget removes the page at a path and all pages below it, and releases their held
// requests.
func (s *Site) Forget(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	below := strings.TrimSuffix(path, "/") + "/"
	for name, p := range s.pages {
		if name == path || strings.HasPrefix(name, below) {
			p.Release()
			delete(s.pages, name)
		}
	}
}

// release lets all held requests continue.
func (s *Site) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pages {
		p.Release()
	}
}

// Pages returns n pages with different bodies.
func (s *Site) Pages(n int) []*Page {
	pages := make([]*Page, n)
	for i := range pages {
		pages[i] = s.Page(fmt.Sprintf("/page/%d", i)).Says(fmt.Sprintf("body %d", i))
	}
	return pages
}

// ServeHTTP serves the page at the path.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Page(r.URL.Path).ServeHTTP(w, r) }

// Hits returns the number of requests for all pages.
func (s *Site) Hits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for _, p := range s.pages {
		sum += p.Hits()
	}
	return sum
}

// ControlPrefix of the paths of instructions.
const ControlPrefix = "/pages"

// Control takes instructions for the pages of a site:
//
//	PUT    /pages/PATH   an Instruction for the page at PATH
//	GET    /pages/PATH   the Count of the page
//	DELETE /pages/PATH   forgets the page and all below it
//
// Serve it on a network that fetchers do not reach.
func Control(site *Site) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+ControlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		var i Instruction
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&i); err != nil {
			http.Error(w, "invalid instruction: "+err.Error(), http.StatusBadRequest)
			return
		}
		i.follow(site.Page(pagePath(r)))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+ControlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		page := site.Find(pagePath(r))
		if page == nil {
			http.Error(w, "unknown page", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		count := Count{Hits: page.Hits(), Waiting: page.Waiting(), NotModified: page.NotModified()}
		_ = json.NewEncoder(w).Encode(count) // the client is gone if it fails
	})
	mux.HandleFunc("DELETE "+ControlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		site.Forget(pagePath(r))
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// follow applies an instruction. It holds the page before it changes the response, and releases it afterwards,
// so that held requests get the new response.
func (i Instruction) follow(page *Page) {
	if i.Held {
		page.Hold()
	}
	if i.Tagged {
		page.Tagged()
	}
	page.Requires(i.Authorization)
	if i.Status == http.StatusOK {
		page.Serves(i.Body)
	} else {
		page.Fails(i.Status)
	}
	if !i.Held {
		page.Release()
	}
}

func pagePath(r *http.Request) string { return r.URL.Path[len(ControlPrefix):] }

// Instruction sets the response of a page. It is the body of PUT /pages/PATH.
type Instruction struct {
	// Status of the response.
	Status int `json:"status"`
	// Body of a response with status 200.
	Body []byte `json:"body,omitempty"`
	// Tagged makes the page send an ETag, and respond with 304 to a request with that ETag. It
	// cannot be undone.
	Tagged bool `json:"tagged,omitempty"`
	// Authorization is the header without which the response is 401 (empty means none).
	Authorization string `json:"authorization,omitempty"`
	// Held blocks requests until an instruction without Held.
	Held bool `json:"held,omitempty"`
}

// Count has the counters of a page. It is the response to GET /pages/PATH.
type Count struct {
	// Hits is the number of requests, Waiting the number of held requests, and NotModified the
	// number of responses with 304.
	Hits        int `json:"hits"`
	Waiting     int `json:"waiting"`
	NotModified int `json:"notModified"`
}

// maxRequest has room for a body of 2 MiB in base64, twice the size of a ConfigMap.
const maxRequest = 3 << 20
