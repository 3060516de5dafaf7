package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin/remote"
	"github.com/kv8s/curl-me-that/proto/process"
)

func command() *cobra.Command {
	var log process.LogOptions
	var pages, listen string
	cmd := &cobra.Command{
		Use:   "origin",
		Short: "Serve pages to fetch: some for people, and some for tests",
		Long: "Origin is for demos and tests only. At --pages, it serves pages for ConfigMaps;" +
			"at --listen, it takes instructions from tests. Fetchers should not be able to" +
			"reach --listen.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := log.New(os.Stderr, "origin")
			if err != nil {
				return err
			}
			logger.Info().Str("version", process.BuildVersion()).Str("pages", pages).Str("listen", listen).Msg("starting")
			return serve(cmd.Context(), pages, listen)
		},
	}
	log.BindFlags(cmd.Flags())
	cmd.Flags().StringVar(&pages, "pages", ":8080", "address of the pages to fetch")
	cmd.Flags().StringVar(&listen, "listen", ":8084", "address for instructions, /healthz, /readyz and /metrics")
	cmd.AddCommand(reachCommand())
	return cmd
}

// serve answers at both addresses until ctx is done.
func serve(ctx context.Context, pages, listen string) error {
	site := origin.NewSite("")
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	aside := http.NewServeMux()
	aside.Handle("/", process.Handler(process.NewHealth(), registry))
	aside.Handle("/pages/", remote.Handler(site))

	group, ctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"pages", pages, front(site)},
		{"listen", listen, aside},
	} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
		if err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
		defer listener.Close()
		group.Go(func() error { return process.Serve(ctx, listener, s.handler) })
	}
	return group.Wait()
}

// front serves the pages for people, and the pages of the site. No request adds a page.
func front(site *origin.Site) http.Handler {
	people := demoPages()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := site.Find(r.URL.Path); page != nil {
			page.ServeHTTP(w, r)
			return
		}
		people.ServeHTTP(w, r)
	})
}
