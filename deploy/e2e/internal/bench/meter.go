package bench

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// meter stands before the origin and notes when requests came. It may be used
// from several goroutines.
type meter struct {
	origin http.Handler

	mu          sync.Mutex
	responses   map[string]response
	first, last time.Time
	requests    int
}

// response is the last one to a path.
type response struct {
	// began is when the request had arrived, took the time to answer it.
	began time.Time
	took  time.Duration
}

// before puts the meter before a handler.
func (m *meter) before(origin http.Handler) http.Handler {
	m.origin, m.responses = origin, map[string]response{}
	return m
}

// ServeHTTP lets the origin answer.
func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	m.origin.ServeHTTP(w, r)
	m.note(r.URL.Path, response{began: began, took: time.Since(began)})
}

func (m *meter) note(path string, r response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == 0 {
		m.first = r.began
	}
	m.last = r.began
	m.requests++
	m.responses[path] = r
}

// response returns the last response to a path; the zero response: none.
func (m *meter) response(path string) response {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.responses[path]
}

// count returns how many requests got a response since the last reset, and when
// the first and the last one arrived.
func (m *meter) count() (requests int, first, last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests, m.first, m.last
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.responses)
	m.requests = 0
}

// body is the path, repeated up to size bytes.
func body(path string, size int) string {
	text := []byte(path + "\n")
	return string(bytes.Repeat(text, size/len(text)+1)[:size])
}
