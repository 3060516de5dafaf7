package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
)

// Options select servers and credentials.
type Options struct {
	// URL has server addresses, separated by commas (empty: those of the context).
	URL string
	// Context is a context of the nats command (empty: the selected one, unless URL is set).
	Context string
	// Files has the credentials and certificates.
	Files process.NATSFiles
}

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.URL, "nats-url", "", "NATS server addresses, separated by commas (default: those of the context)")
	fs.StringVar(&o.Context, "context", "", "context of the nats command (default: the selected one)")
	o.Files.BindFlags(fs)
}

// ErrNoConnection means that no server accepted the connection.
var ErrNoConnection = errors.New("cannot connect to NATS")

// connectTimeout limits the time to connect to one server.
const connectTimeout = 5 * time.Second

// Connection to NATS. It must be closed.
type Connection struct {
	Conn   *nats.Conn
	Client *Client
	// Where is the URL of the server, without credentials.
	Where string
	// Denials has the permission violations on the connection.
	Denials *Denials
}

// Names of files in the directory of the kubeconfig, by which curlctl finds the NATS of the demo and of docker compose:
// a context of the nats command, an NKey seed and certificates to trust.
const (
	BesideKubeconfig = "nats.json"
	besideNKey       = "nats.nk"
	besideCA         = "nats.crt"
)

// Open connects, and fails if no server is available. Without an address or a context it uses the selected context of
// the nats command, BesideKubeconfig, the default address, or a port-forward to the NATS of the chart, whichever comes
// first. Errors wrap ErrNoConnection.
func (o *Options) Open(ctx context.Context, kubernetes kube.Options) (*Connection, error) {
	if err := o.Files.Validate(); err != nil {
		return nil, err
	}
	denials := new(Denials)
	selected := o.beside(kubernetes)
	nc, settings, err := selected.connect(ctx, denials)
	where := ""
	if err != nil && o.from() == "" && errors.Is(err, nats.ErrNoServers) {
		var forwarded error
		if nc, where, forwarded = o.forward(ctx, kubernetes, denials); forwarded == nil {
			err = nil
		} else {
			err = fmt.Errorf("%w, and there is no port-forward: %w", plain(err), cluster.PlainError{Err: forwarded})
		}
	}
	if err != nil {
		byDefault := " at " + nats.DefaultURL + " (set --nats-url or --context)"
		return nil, fmt.Errorf("%w%s: %w", ErrNoConnection, cmp.Or(selected.from(), byDefault), o.plain(err))
	}
	js, err := jetStream(nc, settings)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Connection{
		Conn: nc, Client: NewClient(js), Where: cmp.Or(where, nc.ConnectedUrlRedacted()), Denials: denials,
	}, nil
}

// beside returns the options with BesideKubeconfig as the context, if it exists and nothing else is selected. They also
// have the NKey and the authority from the files beside it, if they exist.
func (o Options) beside(kubernetes kube.Options) Options {
	kubeconfig := kubernetes.File()
	if o.from() != "" || kubeconfig == "" {
		return o
	}
	file, err := filepath.Abs(filepath.Join(filepath.Dir(kubeconfig), BesideKubeconfig))
	if _, missing := os.Stat(file); err != nil || missing != nil {
		return o
	}
	o.Context = file
	for name, field := range map[string]*string{besideNKey: &o.Files.NKey, besideCA: &o.Files.CA} {
		path := filepath.Join(filepath.Dir(file), name)
		if _, missing := os.Stat(path); missing == nil && *field == "" {
			*field = path
		}
	}
	return o
}

// forward connects to the NATS of the chart.
func (o *Options) forward(ctx context.Context, kubernetes kube.Options, denials *Denials) (*nats.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	found, err := findInCluster(ctx, kubernetes)
	if err != nil {
		return nil, "", err
	}
	options, err := found.options(ctx)
	if err != nil {
		return nil, "", err
	}
	options = append(o.options(ctx, denials), options...)
	nc, err := nats.Connect("nats://"+found.service.Name+":4222", options...)
	if why := found.refusal.Load(); err != nil && why != nil {
		err = errors.New(*why)
	}
	return nc, found.where(), err
}

// Close ends the connection.
func (c *Connection) Close() { c.Conn.Close() }

// jetStream returns the JetStream of a context: by domain, by API prefix, or the default.
func jetStream(nc *nats.Conn, c natscontext.Settings) (jetstream.JetStream, error) {
	timeout := jetstream.WithDefaultTimeout(10 * time.Second)
	switch {
	case c.JSDomain != "":
		return jetstream.NewWithDomain(nc, c.JSDomain, timeout)
	case c.JSAPIPrefix != "":
		return jetstream.NewWithAPIPrefix(nc, c.JSAPIPrefix, timeout)
	}
	return jetstream.New(nc, timeout)
}

func (o *Options) options(ctx context.Context, denials *Denials) []nats.Option {
	timeout := connectTimeout
	if end, limited := ctx.Deadline(); limited {
		timeout = min(timeout, time.Until(end))
	}
	return append([]nats.Option{
		nats.Name("curlctl"),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // such as after the rotation of a seed, before NATS is reloaded
		nats.ClosedHandler(func(nc *nats.Conn) {
			denials.close(fmt.Errorf("%w: %w: %w", ErrNoConnection, process.ErrClosed, nc.LastError()))
		}),
		func(n *nats.Options) error {
			if n.InboxPrefix == "" {
				n.InboxPrefix = process.InboxPrefix("curlctl")
			}
			return nil
		},
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if e := denial(err); e != nil {
				denials.add(e)
			}
		}),
	}, o.Files.Options()...)
}

func (o *Options) connect(ctx context.Context, denials *Denials) (*nats.Conn, natscontext.Settings, error) {
	opts := o.options(ctx, denials)
	if o.URL != "" && o.Context == "" {
		nc, err := nats.Connect(o.URL, opts...)
		return nc, natscontext.Settings{}, err
	}
	if o.URL != "" {
		opts = append(opts, func(n *nats.Options) error {
			n.Servers = strings.Split(strings.ReplaceAll(o.URL, " ", ""), ",")
			return nil
		})
	}
	return natscontext.Connect(o.Context, opts...)
}

// ContextDir returns the directory of the nats command, with its contexts.
func ContextDir() string {
	config := os.Getenv("XDG_CONFIG_HOME")
	if home, err := os.UserHomeDir(); config == "" && err == nil {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "nats")
}

// from names the selected server (empty: none is selected).
func (o *Options) from() string {
	switch {
	case o.URL != "":
		return " at " + process.RedactServers(o.URL)
	case o.Context != "":
		return " with context " + o.Context
	}
	if selected, err := os.ReadFile(filepath.Join(ContextDir(), "context.txt")); err == nil {
		return " with the selected context " + strings.TrimSpace(string(selected))
	}
	return ""
}

// plain explains an error. A port-forward that somebody else opened may have ended.
func (o *Options) plain(err error) error {
	local := strings.Contains(o.URL, "127.0.0.1") || strings.Contains(o.URL, "localhost")
	if local && errors.Is(err, nats.ErrNoServers) {
		return fmt.Errorf("%w (if this is a port-forward, it has ended; without --nats-url, curlctl opens its own)",
			plain(err))
	}
	return plain(err)
}

// plain replaces errors whose text may repeat a URL with credentials.
func plain(err error) error {
	if errors.Is(err, nats.ErrNoServers) {
		return errors.New("no server accepts connections there")
	}
	if wrong, found := errors.AsType[*url.Error](err); found && wrong.Op == "parse" { // else of Kubernetes
		return errors.New("an address of a server is invalid, an example is nats://nats:4222")
	}
	for _, known := range []error{nats.ErrAuthorization, nats.ErrTimeout, nats.ErrSecureConnRequired} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}
