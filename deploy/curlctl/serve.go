package curlctl

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/hooks"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// hooking holds the flags of hooks.
type hooking struct {
	config, listen string
	log            process.LogOptions
	addresses      process.Addresses
}

// hooksCommand returns the command hooks.
func hooksCommand(o *options) *cobra.Command {
	h := new(hooking)
	cmd := &cobra.Command{
		Use:   "hooks --config FILE",
		Short: "Receive webhooks, and fetch the keys whose URLs have changed",
		Long: "Serves POST /hooks/NAME until interrupted. A request that proves to know the secret of a hook\n" +
			"fetches all keys whose URL begins with that of the hook, at most once in 10 s.",
		Args: noArgs,
		RunE: o.Run(h.run),
	}
	h.log.BindFlags(cmd.Flags())
	h.addresses.BindFlags(cmd.Flags(), "")
	cmd.Flags().StringVar(&h.config, "config", "hooks.yaml", "file with the hooks; it is read again when it changes")
	cmd.Flags().StringVar(&h.listen, "hooks-listen", "127.0.0.1:8080", "address for hooks")
	return cmd
}

func (h *hooking) run(ctx context.Context, s *session, _ []string) error {
	log, err := h.log.New(os.Stderr, "hooks")
	if err != nil {
		return usagef("%w", err)
	}
	all, err := hooks.Load(h.config)
	if err != nil {
		return usagef("%w", err)
	}
	registry, health := prometheus.NewRegistry(), process.NewHealth()
	server := hooks.New(all, refetchAll(s.Client), log, metric.New(registry, "hooks"))
	endpoints, err := h.addresses.Open(health, registry)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", h.listen)
	if err != nil {
		return errorf(fault.Failed, "--hooks-listen: %w", err)
	}
	s.Out.Linef("Serving %d hooks at http://%s/hooks/", len(all), listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	for _, serve := range append(endpoints, func(ctx context.Context) error { return server.Serve(ctx, listener) }) {
		group.Go(func() error { return serve(ctx) })
	}
	reload.Run(ctx, nil, func() {
		if all, err := hooks.Load(h.config); err == nil {
			server.Use(all)
		} else {
			log.Error().Err(err).Msg("keeping the last valid hooks")
		}
	})
	return group.Wait()
}

// refetchAll returns a function that requests the fetch of all keys whose URL begins with a prefix.
func refetchAll(client *operate.Client) hooks.Refetch {
	return func(ctx context.Context, prefix string, id int64) (int, bool, error) {
		items, err := replay.Refetch{URL: prefix, Begun: id}.Items(ctx, client)
		if err == nil {
			err = replay.Publish(ctx, client, items, 0, nil)
		}
		verdicts := replay.Verdicts(items)
		return len(items), verdicts[replay.Already] > 0 && verdicts[replay.Replayed] == 0, err
	}
}

// HookMetrics returns the metrics of the command hooks.
func HookMetrics() []metric.Definition {
	set := metric.New(prometheus.NewRegistry(), "hooks")
	hooks.New(nil, nil, zerolog.Nop(), set)
	return set.Definitions()
}

// pageKubeTimeout limits a request of a page to Kubernetes.
const pageKubeTimeout = 3 * time.Second

// consoleCommand returns the command console.
func consoleCommand(o *options) *cobra.Command {
	listen := ""
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve curlctl as web pages on this machine (may read Kubernetes)",
		Long: "Serves web pages that show the pipeline, its failures and keys live, with buttons to replay\n" +
			"and refetch, on a loopback address. It prints an address that signs in one browser, with the\n" +
			"rights of the NATS user. It runs until interrupted.",
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host, _, err := net.SplitHostPort(listen)
		if err != nil {
			return usagef("--listen: %q is not an address such as 127.0.0.1:8090", listen)
		}
		if !console.IsLoopback(host) {
			return usagef("--listen: only loopback addresses are allowed, not %q", listen)
		}
		return o.Run(func(_ context.Context, s *session, _ []string) error {
			return serve(cmd.Context(), s, listen) //nolint:contextcheck // a denied request must not end the console
		})(cmd, args)
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address to listen on (port 0: a free one)")
	return cmd
}

func serve(ctx context.Context, s *session, listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	deps := console.Deps{Conn: s.Connection, Client: s.Client, Now: s.Now}
	// The pages report an unusable kubeconfig, but not a missing one.
	_, kubeErr := s.Kube.UserConfig()
	if kubeErr == nil || s.Kube.Kubeconfig != "" || os.Getenv("KUBECONFIG") != "" {
		deps.Kubernetes = &operate.Cluster{Options: s.Kube, Timeout: pageKubeTimeout}
	}
	server := console.New(ctx, deps, &url.URL{Scheme: "http", Host: listener.Addr().String()})
	s.Out.Linef("The console of %s is at %s", s.Where, server.URL())
	return server.Serve(ctx, listener)
}
