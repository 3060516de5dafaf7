package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
)

// Handler serves /healthz (the process runs), /readyz (all parts are ready, by name with ?verbose)
// and /metrics.
func Handler(health *Health, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	serveHealth(mux, health)
	serveMetrics(mux, metrics)
	return mux
}

func serveHealth(mux *http.ServeMux, health *Health) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.Handle("GET /readyz", health)
}

func serveMetrics(mux *http.ServeMux, metrics prometheus.Gatherer) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
}

// Addresses are the addresses for health and metrics. They need no authentication.
type Addresses struct {
	// Listen is the address for health, and for metrics unless MetricsListen is set; empty means
	// none.
	Listen string
	// MetricsListen is a separate address for metrics; if empty, Listen serves them.
	MetricsListen string
	// Profiling also serves the profiles of the Go runtime.
	Profiling bool
}

// BindFlags adds --listen with its default, --metrics-listen and --profiling.
func (a *Addresses) BindFlags(fs *pflag.FlagSet, listen string) {
	fs.StringVar(&a.Listen, listenFlag, listen,
		"address for /healthz, /readyz and /metrics, such as 127.0.0.1:8080 (empty: none)")
	fs.StringVar(&a.MetricsListen, "metrics-listen", "", "separate address for /metrics (empty: that of --listen)")
	fs.BoolVar(&a.Profiling, "profiling", false,
		"serve profiles of the Go runtime under /debug/pprof/ next to the metrics")
}

// Open listens at all addresses, and returns functions that serve there until ctx is done. The error
// names the flag of the address that failed.
func (a *Addresses) Open(health *Health, metrics prometheus.Gatherer) (all []func(context.Context) error, err error) {
	forHealth, forMetrics := http.NewServeMux(), http.NewServeMux()
	serveHealth(forHealth, health)
	if a.MetricsListen == "" {
		forMetrics = forHealth
	}
	serveMetrics(forMetrics, metrics)
	if a.Profiling { // for `go tool pprof`; the WriteTimeout of Serve limits CPU profiles
		forMetrics.HandleFunc("GET /debug/pprof/", pprof.Index)
		forMetrics.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	}
	for _, at := range []struct {
		flag, address string
		handler       http.Handler
	}{{listenFlag, a.Listen, forHealth}, {"metrics-listen", a.MetricsListen, forMetrics}} {
		if at.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", at.address)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", at.flag, err)
		}
		all = append(all, func(ctx context.Context) error { return Serve(ctx, listener, at.handler) })
	}
	return all, nil
}

// Serve serves HTTP on the listener until ctx is done. Configure changes the server.
func Serve(
	ctx context.Context, listener net.Listener, handler http.Handler, configure ...func(*http.Server),
) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	for _, change := range configure {
		change(server)
	}
	stopped := context.AfterFunc(ctx, func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(short) != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	}
	return nil
}
