package origin

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
)

// Server answers on 127.0.0.1. Its methods may be called from several
// goroutines.
type Server struct {
	server *httptest.Server

	mu    sync.Mutex
	pages map[string]*Page
}

// Start runs a server that speaks plain HTTP.
func Start() *Server { return start((*httptest.Server).Start) }

// StartTLS runs a server that speaks HTTPS with a certificate of its own.
func StartTLS() *Server { return start((*httptest.Server).StartTLS) }

func start(run func(*httptest.Server)) *Server {
	s := &Server{pages: map[string]*Page{}}
	s.server = httptest.NewUnstartedServer(s)
	run(s.server)
	return s
}

// Close ends the server; requests that are held are let go.
func (s *Server) Close() {
	s.mu.Lock()
	for _, p := range s.pages {
		p.release()
	}
	s.mu.Unlock()
	s.server.CloseClientConnections()
	s.server.Close()
}

// Certificate returns the server's certificate as PEM, for clients to trust.
func (s *Server) Certificate() []byte {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return b.Bytes()
}

// Address is the host and port, by the name localhost.
func (s *Server) Address() string {
	u, err := url.Parse(s.server.URL)
	if err != nil {
		return ""
	}
	return "localhost:" + u.Port()
}

// PageByAddress is the URL of a page without a scheme, by the server's address
// in place of its name; certificates of StartTLS are for addresses.
func (s *Server) PageByAddress(path string) string { return s.server.Listener.Addr().String() + path }

// Port of the server.
func (s *Server) Port() int {
	u, err := url.Parse(s.server.URL)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port())
	return port
}

// Page returns the page at a path such as /joke; at first it answers 404.
func (s *Server) Page(path string) *Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pages[path]
	if p == nil {
		p = newPage(s, path)
		s.pages[path] = p
	}
	return p
}

// Pages returns n pages that each say something else.
func (s *Server) Pages(n int) []*Page {
	pages := make([]*Page, n)
	for i := range pages {
		pages[i] = s.Page(fmt.Sprintf("/page/%d", i)).Says(fmt.Sprintf("body %d", i))
	}
	return pages
}

// ServeHTTP answers for the page at the path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Page(r.URL.Path).serve(w, r) }

// Served tells whether the server has ever answered a GET of that URL with 200
// and that body.
func (s *Server) Served(rawURL string, body []byte) bool {
	u, err := url.Parse(rawURL)
	if err != nil || u.Port() != strconv.Itoa(s.Port()) {
		return false
	}
	path := u.Path
	if path == "" {
		path = "/"
	}
	s.mu.Lock()
	p := s.pages[path]
	s.mu.Unlock()
	return p != nil && p.served(body)
}

// Hits returns how many requests came for all pages together.
func (s *Server) Hits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for _, p := range s.pages {
		sum += p.Hits()
	}
	return sum
}

// held tells when a held request may go on.
type held struct {
	released chan struct{}
	once     sync.Once
}

func (h *held) release() { h.once.Do(func() { close(h.released) }) }

// wait returns whether the client is still there when the request may go on.
func (h *held) wait(ctx context.Context) bool {
	select {
	case <-h.released:
		return true
	case <-ctx.Done():
		return false
	}
}
