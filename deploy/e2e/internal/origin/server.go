// Package origin is a web server for tests. Specs set the response and latency of each page. Pages count
// requests and record every good body that they served.
package origin

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/pem"
	"errors"
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
	base, err := url.Parse(s.base)
	u, errURL := url.Parse(rawURL)
	if errors.Join(err, errURL) != nil || u.Port() != base.Port() {
		return false
	}
	page := s.Find(cmp.Or(strings.TrimPrefix(u.Path, base.Path), "/"))
	return page != nil && page.served(body)
}

// Site is a set of pages, independent of a server. It is safe for concurrent use.
type Site struct {
	// base is the URL of the site without a path, such as http://localhost:80.
	base string
	// remote serves the pages, unless this process does.
	remote *remote

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
