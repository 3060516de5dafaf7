// Package console serves curlctl as web pages. Every page and action works without JavaScript. A script adds
// live numbers and keyboard shortcuts.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// Deps are the dependencies of the console.
type Deps struct {
	Conn   *operate.Connection
	Access *Access
	// Kubernetes reads the cluster (nil: the console does not read it).
	Kubernetes *keys.Cluster
	// Now is the clock.
	Now func() time.Time
	// TraceURL is the URL of a trace, with {trace} for its ID (empty: no links).
	TraceURL string
}

// Server serves the console.
type Server struct {
	deps  Deps
	model *model
	pages *pages

	// ended ends when the server stops.
	ended context.Context //nolint:containedctx // Serve needs the one of New
}

// Limits of requests.
const (
	maxBody       = 64 << 10
	maxHeader     = 32 << 10
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	stopTimeout   = 5 * time.Second
)

// New returns a server, which runs until ctx ends. It fails if a template is invalid.
func New(ctx context.Context, d Deps) (*Server, error) {
	p, err := newPages()
	if err != nil {
		return nil, err
	}
	return &Server{deps: d, pages: p, ended: ctx, model: &model{conn: d.Conn, kubernetes: d.Kubernetes, now: d.Now}}, nil
}

// Serve serves until the context of New ends.
func (s *Server) Serve(listener net.Listener) error {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: requestTimeout + stopTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
	}
	ended, end := context.WithCancel(s.ended)
	defer end()
	var running sync.WaitGroup
	running.Go(func() {
		<-ended.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(listener)
	end()
	running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the console: %w", err)
}

// handler returns the handler of all pages.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{file}", s.pages.static)
	for pattern, page := range map[string]func(*visit) (*page, error){
		"GET /{$}":                               s.overviewPage,
		"GET /failures":                          s.failuresPage,
		"GET /failures/{id}":                     s.failurePage,
		"GET /hosts":                             s.hostsPage,
		"GET /wants":                             s.wantsPage,
		"GET /objects/{namespace}/{name}":        s.objectPage,
		"GET /versions/{namespace}/{name}/{key}": s.versionsPage,
		"GET /doctor":                            s.doctorPage,
		"GET /help":                              s.helpPage,
		"GET /search":                            s.search,
		"GET /live":                              s.livePage,
		"GET /failures/replay":                   s.replayDialog,
		"POST /failures/replay":                  s.replay,
		"GET /refetch":                           s.refetchDialog,
		"POST /refetch":                          s.refetch,
		"/": func(v *visit) (*page, error) {
			return nil, notFound("There is no page %s.", v.URL.Path)
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

// isolated refuses requests that pages of other sites embed. They could not read the response, but would load NATS.
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
