// Package natsconn connects to NATS as selected by flags or a context of the nats command.
package natsconn

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
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
	// Timeout limits the time to connect.
	Timeout time.Duration
}

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.URL, "nats-url", "", "NATS server addresses, separated by commas (default: those of the context)")
	fs.StringVar(&o.Context, "context", "", "context of the nats command (default: the selected one)")
	o.Files.BindFlags(fs)
	duration.Var(fs, &o.Timeout, "connect-timeout", 5*time.Second, "timeout for connecting to NATS")
}

// Connection to NATS. It must be closed.
type Connection struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Client    *operate.Client
	// Where is the URL of the server, without credentials.
	Where string
	// Refusals has the permission violations on the connection.
	Refusals *Refusals
}

// Open connects, and fails if no server is available. Errors wrap ErrNoConnection.
func (o *Options) Open() (*Connection, error) {
	if err := o.Files.Validate(); err != nil {
		return nil, err
	}
	refusals := new(Refusals)
	nc, settings, err := o.connect(refusals)
	if err != nil {
		return nil, fmt.Errorf("%w%s: %w", ErrNoConnection, o.from(), plain(err))
	}
	js, err := jetStream(nc, settings)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Connection{
		Conn: nc, JetStream: js, Client: operate.NewClient(js), Where: nc.ConnectedUrlRedacted(), Refusals: refusals,
	}, nil
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

func (o *Options) connect(refusals *Refusals) (*nats.Conn, natscontext.Settings, error) {
	opts := []nats.Option{
		nats.Name("curlctl"),
		nats.Timeout(o.Timeout),
		nats.MaxReconnects(-1),
		func(n *nats.Options) error {
			if n.InboxPrefix == "" {
				n.InboxPrefix = process.InboxPrefix("curlctl")
			}
			return nil
		},
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if e := refusal(err); e != nil {
				refusals.add(e)
			}
		}),
	}
	opts = append(opts, o.Files.Options()...)
	if o.URL != "" && o.Context == "" {
		nc, err := nats.Connect(o.URL, opts...)
		return nc, natscontext.Settings{}, err
	}
	if o.URL != "" {
		opts = append(opts, func(n *nats.Options) error {
			n.Servers = strings.Split(o.URL, ",")
			return nil
		})
	}
	return natscontext.Connect(o.Context, opts...)
}

func (o *Options) from() string {
	switch {
	case o.URL != "":
		return " at " + process.RedactServers(o.URL)
	case o.Context != "":
		return " with context " + o.Context
	}
	return " with the selected context, or at " + nats.DefaultURL + " without one (set --nats-url or --context)"
}

// plain replaces errors whose text may repeat a URL with credentials.
func plain(err error) error {
	if errors.Is(err, nats.ErrNoServers) {
		return errors.New("no server accepts connections there")
	}
	for _, known := range []error{nats.ErrAuthorization, nats.ErrTimeout, nats.ErrSecureConnRequired} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}
