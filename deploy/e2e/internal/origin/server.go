// Package origin is a web server for tests. Specs set the response and latency of each page. Pages count
// requests and record every good body that they served.
package origin

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
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
