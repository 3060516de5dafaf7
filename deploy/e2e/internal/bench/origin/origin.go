// Package origin is the server that the benchmark's ConfigMaps ask for data. It
// answers at once, so that what is measured is not its own time.
package origin

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server answers on loopback.
type Server struct {
	size     int
	listener net.Listener
	server   *http.Server

	mu          sync.Mutex
	answers     map[string]Answer
	first, last time.Time
	requests    int
}

// Answer is the last one to a path.
type Answer struct {
	// Began is when the request had arrived, Took the time to answer it.
	Began time.Time
	Took  time.Duration
}

// Start listens on a free port; bodies have size bytes.
func Start(size int) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the server with the data: %w", err)
	}
	s := &Server{size: size, listener: listener, answers: map[string]Answer{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		// Errors show as failing fetches.
		_ = s.server.Serve(listener)
	}()
	return s, nil
}

// URL returns the URL of a path.
func (s *Server) URL(path string) string { return "http://" + s.listener.Addr().String() + "/" + path }

// Body returns what a path is answered with: the path, repeated.
func (s *Server) Body(path string) string {
	text := []byte(path + "\n")
	return string(bytes.Repeat(text, s.size/len(text)+1)[:s.size])
}

// ServeHTTP answers a GET.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	path := r.URL.Path[1:]
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(s.Body(path))) //nolint:gosec // plain text, and no browser reads it
	s.note(path, Answer{Began: began, Took: time.Since(began)})
}

func (s *Server) note(path string, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == 0 {
		s.first = a.Began
	}
	s.last = a.Began
	s.requests++
	s.answers[path] = a
}

// Answer returns the last answer to a path; the zero Answer: none.
func (s *Server) Answer(path string) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[path]
}

// Requests returns how many requests were answered, and when the first and the
// last one arrived.
func (s *Server) Requests() (count int, first, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.first, s.last
}

// Forget forgets all requests.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
	s.requests = 0
}

// Stop closes all connections.
func (s *Server) Stop() error {
	if err := s.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop the server with the data: %w", err)
	}
	return nil
}
