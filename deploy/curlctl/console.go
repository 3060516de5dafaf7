package curlctl

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Who is let in to the console.
const (
	authLocal      = "local"
	authKubernetes = "kubernetes"
	authNone       = "none"
)

// kubeTimeout bounds what a page reads of Kubernetes.
const kubeTimeout = 3 * time.Second

// consoling holds the flags of console.
type consoling struct {
	*options
	auth, listen, traceURL, cert, key string
	cluster                           kube.Options
}

func consoleCommand(o *options) *cobra.Command {
	c := &consoling{options: o}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve web pages that show what curlctl does, and do it (may read Kubernetes)",
		Long: "Serves web pages with the pipeline, its failures, hosts and timers, live, and with\n" +
			"buttons to replay, refetch, pause and purge. It runs until it is interrupted.\n\n" +
			"--auth=local lets in, on this machine, whoever opens the address that is printed, once;\n" +
			"what they may do is what the NATS user may. --auth=kubernetes asks for a token of the\n" +
			"cluster and reviews what its user may do. --auth=none shows, on a loopback address\n" +
			"only, and changes nothing.",
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.validate(); err != nil {
			return err
		}
		refusals := new(natsconn.Refusals)
		o.nats.Refused = refusals.Add
		return o.run(func(ctx context.Context, s *session, _ []string) error { return c.serve(ctx, s, refusals) })(cmd, args)
	}
	fs := cmd.Flags()
	fs.StringVar(&c.auth, "auth", authLocal, "who is let in: local, kubernetes or none")
	fs.StringVar(&c.listen, "listen", "", "address to serve at; without it a free port of 127.0.0.1, or :8090 for --auth=kubernetes")
	fs.StringVar(&c.traceURL, "trace-url", "", "where a trace is seen, with {trace} in the place of its ID")
	fs.StringVar(&c.cert, "tls-cert", "", "file with the certificate to serve with; without it plain HTTP")
	fs.StringVar(&c.key, "tls-key", "", "file with the key of --tls-cert")
	c.cluster.BindUserFlags(fs)
	complete(cmd, "auth", cobra.FixedCompletions([]string{authLocal, authKubernetes, authNone}, silently))
	return cmd
}

// validate checks the flags and fills in the address.
func (c *consoling) validate() error {
	if (c.cert == "") != (c.key == "") {
		return usagef("--tls-cert and --tls-key: one is given without the other")
	}
	switch c.auth {
	case authKubernetes:
		if c.listen == "" {
			c.listen = ":8090"
		}
		return nil
	case authLocal, authNone:
	default:
		return usagef("--auth: %q is not one of local, kubernetes, none", c.auth)
	}
	if c.listen == "" {
		c.listen = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil {
		return usagef("--listen: %q is not an address such as 127.0.0.1:8090", c.listen)
	}
	if !access.IsLoopback(host) {
		return usagef("--listen: with --auth=%s only a loopback address may be served at, not %q", c.auth, c.listen)
	}
	return nil
}

func (c *consoling) serve(ctx context.Context, s *session, refusals *natsconn.Refusals) error {
	listener, err := c.open()
	if err != nil {
		return err
	}
	deps := console.Deps{Conn: s.Connection, Refusals: refusals, Now: s.now}
	base := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	if c.cert != "" {
		base.Scheme = "https"
	}
	address := base.String() + "/"
	switch c.auth {
	case authLocal:
		local := access.NewLocal(ctx, s.Connection, base)
		deps.Access, address = local, local.URL()
	case authNone:
		deps.Access = access.Anonymous{}
	default:
		if deps.Access, err = c.reviewed(ctx, s); err != nil {
			return err
		}
	}
	if c.auth != authKubernetes && c.reachable() {
		deps.Kubernetes = forPages{c.cluster, c.options}
	}
	server, err := console.New(ctx, console.Config{TraceURL: c.traceURL}, deps)
	if err != nil {
		return err
	}
	s.out.Linef("The console of %s is at %s", s.Where, address)
	return server.Serve(listener) //nolint:contextcheck // New has it
}

func (c *consoling) open() (net.Listener, error) {
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
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}), nil
}

func (c *consoling) reviewed(ctx context.Context, s *session) (console.Access, error) {
	config, err := cluster.Config(c.cluster)
	if err != nil {
		return nil, noCluster(err)
	}
	return access.NewKubernetes(ctx, config, s.Connection, s.now)
}

// reachable reports whether there is a kubeconfig; without one pages show what
// NATS holds.
func (c *consoling) reachable() bool {
	_, err := cluster.Config(c.cluster)
	return err == nil || c.cluster.Kubeconfig != "" || os.Getenv("KUBECONFIG") != ""
}

// forPages is what pages read of Kubernetes, as the user of the kubeconfig.
type forPages struct {
	cluster kube.Options
	options *options
}

// Object implements console.Cluster.
func (k forPages) Object(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, *watchv1.Watcher, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeTimeout)
	defer cancel()
	return ofWatcher(ctx, k.cluster, namespace, name)
}

// Watchers implements console.Cluster.
func (k forPages) Watchers(ctx context.Context, namespace, from string, limit int64) ([]watchv1.Watcher, string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeTimeout)
	defer cancel()
	return cluster.Watchers(ctx, k.cluster, namespace, from, limit)
}

// Consumers implements console.Cluster.
func (k forPages) Consumers(ctx context.Context, namespace string, cm podusage.ConfigMap) ([]podusage.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeTimeout)
	defer cancel()
	return (&podList{options: k.options, cluster: k.cluster}).consumers(ctx, namespace, cm)
}
