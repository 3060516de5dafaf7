// Package console serves curlctl as web pages: they show the rows and fields of its commands, and replay and refetch.
// Every page and action works without JavaScript. A script adds live numbers and keyboard shortcuts.
package console

import (
	"context"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/process"
)

// Deps are the dependencies of the console.
type Deps struct {
	Conn *broker.Connection
	// Kubernetes reads the cluster (nil: the console does not read it).
	Kubernetes *cluster.Client
	// Now is the clock.
	Now func() time.Time
}

// Server serves the console.
type Server struct {
	deps      Deps
	access    *access
	cache     cache
	templates *template.Template
}

// Limits of requests.
const (
	maxBody     = 64 << 10
	maxHeader   = 32 << 10
	readTimeout = 15 * time.Second
)

// New returns a server at an address such as http://127.0.0.1:8090.
func New(ctx context.Context, d Deps, base *url.URL) *Server {
	return &Server{deps: d, access: newAccess(ctx, d, base), cache: cache{deps: d}, templates: parseTemplates()}
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return process.Serve(ctx, listener, s.handler(), func(server *http.Server) {
		server.ReadTimeout, server.WriteTimeout, server.MaxHeaderBytes = readTimeout, requestTimeout+readTimeout, maxHeader
	})
}

// handler returns the handler of all pages.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	for pattern, page := range map[string]func(*visit) (*page, error){
		"GET /{$}":                               s.overviewPage,
		"GET /failures":                          s.failuresPage,
		"GET /failures/{id}":                     s.failurePage,
		"GET /wants":                             s.wantsPage,
		"GET /objects/{namespace}/{name}":        s.objectPage,
		"GET /versions/{namespace}/{name}/{key}": s.versionsPage,
		"GET /doctor":                            s.doctorPage,
		"GET /help":                              s.helpPage,
		"GET /live":                              s.livePage,
		"GET /failures/replay":                   s.replay,
		"POST /failures/replay":                  s.replay,
		"GET /refetch":                           s.refetch,
		"POST /refetch":                          s.refetch,
		"/": func(v *visit) (*page, error) {
			return nil, &problem{http.StatusNotFound, "There is no page " + v.URL.Path + "."}
		},
	} {
		mux.HandleFunc(pattern, s.visited(page))
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, crossSite, http.StatusForbidden)
	}))
	return hardened(onLoopback(isolated(protection.Handler(mux))))
}

// crossSite is the response to a request of another site.
const crossSite = "This request comes from another site. Nothing was done."

// isolated rejects requests that pages of other sites embed. They could not read the response, but would load NATS.
// Links are allowed.
func isolated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "same-origin", "none":
		default:
			link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
			if !link || r.Method != http.MethodGet {
				http.Error(w, crossSite, http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hardened sets security headers, and limits the size of request bodies.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "+
			"require-trusted-types-for 'script'; trusted-types console")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}
