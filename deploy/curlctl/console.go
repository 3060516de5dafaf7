package curlctl

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console"
)

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
		PreRunE: func(*cobra.Command, []string) error {
			switch host, _, err := net.SplitHostPort(listen); {
			case err != nil:
				return usagef("--listen: %q is not an address such as 127.0.0.1:8090", listen)
			case !console.IsLoopback(host):
				return usagef("--listen: only loopback addresses are allowed, not %q", listen)
			}
			return nil
		},
		RunE: o.Run(serving, func(ctx context.Context, s *session, _ []string) error { return serve(ctx, s, listen) }),
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address to listen on (port 0: a free one)")
	return cmd
}

func serve(ctx context.Context, s *session, listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	deps := console.Deps{Conn: s.Connection, Now: s.Now}
	// The pages report an unusable kubeconfig, but not a missing one.
	_, kubeErr := s.Kube.UserConfig()
	if kubeErr == nil || s.Kube.File() != "" {
		deps.Kubernetes = &cluster.Client{Options: s.Kube, Timeout: pageKubeTimeout}
	}
	server := console.New(ctx, deps, &url.URL{Scheme: "http", Host: listener.Addr().String()})
	s.Out.Linef("The console of %s is at %s", s.Where, server.URL())
	return server.Serve(ctx, listener)
}
