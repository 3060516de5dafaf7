package curlctl

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/hooks"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
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
		RunE: o.Run(withNATS, h.run),
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
	err = group.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause // such as a denied request
	}
	return err
}

// refetchAll returns a function that requests the fetch of all keys whose URL begins with a prefix.
func refetchAll(client *broker.Client) hooks.Refetch {
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
