// Package console has the command console.
package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/proto/process/kube"
)

// The values of --auth.
const (
	authLocal      = "local"
	authKubernetes = "kubernetes"
	authNone       = "none"
)

// kubeTimeout limits a request of a page to Kubernetes.
const kubeTimeout = 3 * time.Second

// serving holds the flags.
type serving struct {
	auth, listen, traceURL, cert, key string
	cluster                           *kube.Options
}

// Command returns the command console.
func Command(o *cli.Options) *cobra.Command {
	c := &serving{cluster: &o.Kube}
	auths := []string{authLocal, authKubernetes, authNone}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve curlctl as web pages (may read Kubernetes)",
		Long: "Serves web pages that show the pipeline, its failures and hosts live, with buttons\n" +
			"to replay, refetch, pause and purge. It runs until interrupted.\n\n" +
			"--auth=local prints an address that signs in one browser on this machine, with the rights\n" +
			"of the NATS user. --auth=kubernetes asks for a token of the cluster and checks the rights of\n" +
			"its user. --auth=none serves a loopback address without sign-in, read-only.",
		Args: cli.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(auths, c.auth) {
			return cli.Usagef("--auth: %q is not one of %s", c.auth, strings.Join(auths, ", "))
		}
		if err := c.validate(); err != nil {
			return err
		}
		return o.Run(func(_ context.Context, s *cli.Session, _ []string) error {
			return c.serve(cmd.Context(), s) //nolint:contextcheck // a denied request must not end the console
		})(cmd, args)
	}
	fs := cmd.Flags()
	fs.StringVar(&c.auth, "auth", authLocal, "who may sign in: "+strings.Join(auths, ", "))
	fs.StringVar(&c.listen, "listen", "",
		"address to listen on (default: a free port of 127.0.0.1, or :8090 with --auth=kubernetes)")
	fs.StringVar(&c.traceURL, "trace-url", "", "URL of a trace, with {trace} in place of its ID")
	fs.StringVar(&c.cert, "tls-cert", "", "file with the server certificate (default: plain HTTP)")
	fs.StringVar(&c.key, "tls-key", "", "file with the key of --tls-cert")
	cli.Complete(cmd, "auth", cobra.FixedCompletions(auths, cli.Silently))
	return cmd
}

// validate checks the flags and sets the default address.
func (c *serving) validate() error {
	if (c.cert == "") != (c.key == "") {
		return cli.Usagef("--tls-cert and --tls-key must be given together")
	}
	if c.listen == "" {
		c.listen = map[bool]string{true: ":8090", false: "127.0.0.1:0"}[c.auth == authKubernetes]
	}
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil {
		return cli.Usagef("--listen: %q is not an address such as 127.0.0.1:8090", c.listen)
	}
	if c.auth != authKubernetes && !access.IsLoopback(host) {
		return cli.Usagef("--listen: --auth=%s allows only loopback addresses, not %q", c.auth, c.listen)
	}
	return nil
}

func (c *serving) serve(ctx context.Context, s *cli.Session) error {
	listener, err := c.open()
	if err != nil {
		return err
	}
	deps := console.Deps{Conn: s.Connection, Now: s.Now, TraceURL: c.traceURL}
	base := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	if c.cert != "" {
		base.Scheme = "https"
	}
	address := base.String() + "/"
	config, kubeErr := cluster.Config(*c.cluster)
	switch c.auth {
	case authLocal:
		local := access.NewLocal(ctx, s.Connection, base)
		deps.Access, address = local, local.URL()
	case authNone:
		deps.Access = access.Anonymous{}
	default:
		if kubeErr != nil {
			return &cluster.Error{Operation: "review tokens", Err: kubeErr}
		}
		if deps.Access, err = access.NewKubernetes(ctx, config, s.Connection, s.Now); err != nil {
			return err
		}
	}
	// The pages report an unusable kubeconfig, but not a missing one.
	named := c.cluster.Kubeconfig != "" || os.Getenv("KUBECONFIG") != ""
	if c.auth != authKubernetes && (kubeErr == nil || named) {
		deps.Kubernetes = &cluster.Reader{Options: *c.cluster, Timeout: kubeTimeout, Now: s.Now}
	}
	server, err := console.New(ctx, deps)
	if err != nil {
		return err
	}
	s.Out.Linef("The console of %s is at %s", s.Where, address)
	return server.Serve(listener) //nolint:contextcheck // New has it
}

func (c *serving) open() (net.Listener, error) {
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if c.cert == "" {
		return listener, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert: %w", err)
	}
	return tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), nil
}
