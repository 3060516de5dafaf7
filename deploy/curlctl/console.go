package curlctl

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/proto/process/kube"
)

// The values of --auth.
const (
	authLocal = "local"
	authNone  = "none"
)

// pageKubeTimeout limits a request of a page to Kubernetes.
const pageKubeTimeout = 3 * time.Second

// serving holds the flags.
type serving struct {
	auth, listen, traceURL string
	cluster                *kube.Options
}

// consoleCommand returns the command console.
func consoleCommand(o *options) *cobra.Command {
	c := &serving{cluster: &o.Kube}
	auths := []string{authLocal, authNone}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve curlctl as web pages on this machine (may read Kubernetes)",
		Long: "Serves web pages that show the pipeline, its failures and hosts live, with buttons\n" +
			"to replay and refetch, on a loopback address. It runs until interrupted.\n\n" +
			"--auth=local prints an address that signs in one browser, with the rights of the NATS user.\n" +
			"--auth=none serves everybody on this machine, read-only.",
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(auths, c.auth) {
			return usagef("--auth: %q is not one of %s", c.auth, strings.Join(auths, ", "))
		}
		host, _, err := net.SplitHostPort(c.listen)
		if err != nil {
			return usagef("--listen: %q is not an address such as 127.0.0.1:8090", c.listen)
		}
		if !console.IsLoopback(host) {
			return usagef("--listen: only loopback addresses are allowed, not %q", c.listen)
		}
		return o.Run(func(_ context.Context, s *session, _ []string) error {
			return c.serve(cmd.Context(), s) //nolint:contextcheck // a denied request must not end the console
		})(cmd, args)
	}
	fs := cmd.Flags()
	fs.StringVar(&c.auth, "auth", authLocal, "who may see the pages: "+strings.Join(auths, ", "))
	fs.StringVar(&c.listen, "listen", "127.0.0.1:0", "loopback address to listen on (port 0: a free one)")
	fs.StringVar(&c.traceURL, "trace-url", "", "URL of a trace, with {trace} in place of its ID")
	complete(cmd, "auth", cobra.FixedCompletions(auths, silently))
	return cmd
}

func (c *serving) serve(ctx context.Context, s *session) error {
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	base := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	deps := console.Deps{Conn: s.Connection, Now: s.Now, TraceURL: c.traceURL, Access: console.Anonymous()}
	address := base.String() + "/"
	if c.auth == authLocal {
		deps.Access = console.NewLocal(ctx, s.Connection, base)
		address = deps.Access.URL()
	}
	// The pages report an unusable kubeconfig, but not a missing one.
	_, kubeErr := keys.Config(*c.cluster)
	if kubeErr == nil || c.cluster.Kubeconfig != "" || os.Getenv("KUBECONFIG") != "" {
		deps.Kubernetes = &keys.Cluster{Options: *c.cluster, Timeout: pageKubeTimeout, Now: s.Now}
	}
	server, err := console.New(ctx, deps)
	if err != nil {
		return err
	}
	s.Out.Linef("The console of %s is at %s", s.Where, address)
	return server.Serve(listener) //nolint:contextcheck // New has it
}
