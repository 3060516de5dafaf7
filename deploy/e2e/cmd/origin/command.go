// Command origin is a web server for demos and tests of curl-me-that. It serves a joke for people, and pages
// that a test controls.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/local/demo/joke"
	"github.com/kv8s/curl-me-that/proto/process"
)

func command() *cobra.Command {
	var log process.LogOptions
	var o options
	cmd := &cobra.Command{
		Use:   "origin",
		Short: "Serve pages to fetch: a joke for people, and pages for tests",
		Long: "Origin is for demos and tests only. At --pages, it serves pages for ConfigMaps,\n" +
			"also as a proxy that resolves every name to itself. At --listen, it takes instructions\n" +
			"from tests. Fetchers should not reach --listen where tenants are not trusted.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := log.New(os.Stderr, "origin")
			if err != nil {
				return err
			}
			logger.Info().Str("version", process.BuildVersion()).Str("pages", o.pages).Str("listen", o.listen).Msg("starting")
			return serve(cmd.Context(), o)
		},
	}
	log.BindFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.pages, "pages", ":8080", "address of the pages to fetch")
	cmd.Flags().StringVar(&o.secure, "secure", ":8443", "address of the pages with TLS, if --tls exists")
	cmd.Flags().StringVar(&o.tls, "tls", "/tls", "folder with tls.crt and tls.key for --secure")
	cmd.Flags().StringVar(&o.listen, "listen", ":8084", "address for instructions, /healthz, /readyz and /metrics")
	return cmd
}

// options are the flags.
type options struct{ pages, secure, listen, tls string }

// serve serves all addresses until ctx is done.
func serve(ctx context.Context, o options) error {
	site := origin.NewSite("")
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	control := http.NewServeMux()
	control.Handle("/", process.Handler(process.NewHealth(), registry))
	control.Handle("/pages/", origin.Control(site))

	group, ctx := errgroup.WithContext(ctx)
	type server struct {
		flag, address string
		handler       http.Handler
		secure        *tls.Config
	}
	servers := []server{{"pages", o.pages, proxied(o.secure, front(site)), nil}, {"listen", o.listen, control, nil}}
	pair, err := tls.LoadX509KeyPair(filepath.Join(o.tls, "tls.crt"), filepath.Join(o.tls, "tls.key"))
	switch {
	case err == nil:
		secure := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		servers = append(servers, server{"secure", o.secure, front(site), secure})
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--tls: %w", err)
	}
	for _, s := range servers {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
		if err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
		defer listener.Close()
		if s.secure != nil {
			listener = tls.NewListener(listener, s.secure)
		}
		group.Go(func() error { return process.Serve(ctx, listener, s.handler) })
	}
	return group.Wait()
}

const index = "Get " + joke.Path + " for a different joke each time.\n"

// front serves a page for people, and the pages of the site. A request never creates a page.
func front(site *origin.Site) http.Handler {
	people := http.NewServeMux()
	people.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, index) })
	people.Handle("GET "+joke.Path, joke.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := site.Find(r.URL.Path); page != nil {
			page.ServeHTTP(w, r)
			return
		}
		people.ServeHTTP(w, r)
	})
}

func main() { os.Exit(process.Execute(command())) }
