package origin

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
)

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
