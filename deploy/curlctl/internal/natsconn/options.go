// Package natsconn connects to NATS as an operator does: by flags, or by a context
// of the nats command.
package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
	"github.com/kv8s/curl-me-that/proto/service"
)

// Options are how to reach the broker.
type Options struct {
	// URL is one or more server addresses, separated by commas; empty: those of
	// the context.
	URL string
	// Context is the name of a context of the nats command; empty: the selected
	// one, unless URL is given.
	Context string
	// Files authenticate.
	Files service.NATSFiles
	// Timeout bounds the connection.
	Timeout time.Duration
	// Refused is called when the server refuses something; nil: the context of
	// Open ends.
	Refused func(*PermissionError)
}

// Names returns the names of the flags that say where NATS is and who connects.
func Names() []string {
	return []string{"context", "nats-url", "nats-creds", "nats-nkey", "nats-ca", "nats-cert", "nats-key"}
}

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.URL, "nats-url", "", "addresses of the NATS servers, separated by commas; without it those of the context")
	fs.StringVar(&o.Context, "context", "", "context of the nats command; without it the selected one")
	o.Files.BindFlags(fs)
	duration.Var(fs, &o.Timeout, "connect-timeout", 5*time.Second, "time to connect to NATS")
}

// Connection to NATS with what is used on it. Close must be called.
type Connection struct {
	// Conn is the connection itself.
	Conn *nats.Conn
	// JetStream is the context on it.
	JetStream jetstream.JetStream
	// Client uses the pipeline's protocol.
	Client *operate.Client
	// Where the servers are, without credentials.
	Where string

	stop context.CancelCauseFunc
}

// Open connects once; it does not wait for a server that is unavailable. The returned
// context ends, with a *PermissionError as its cause, when the server refuses
// something. Errors wrap ErrNoConnection.
func (o *Options) Open(ctx context.Context) (*Connection, context.Context, error) {
	ctx, stop := context.WithCancelCause(ctx)
	refused := o.Refused
	if refused == nil {
		refused = func(e *PermissionError) { stop(e) }
	}
	nc, settings, err := o.connect(refused)
	if err != nil {
		stop(nil)
		return nil, nil, fmt.Errorf("%w%s: %w", ErrNoConnection, o.from(), plain(err))
	}
	js, err := jetStream(nc, settings)
	if err != nil {
		nc.Close()
		stop(nil)
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Connection{Conn: nc, JetStream: js, Client: operate.NewClient(js), Where: nc.ConnectedUrlRedacted(), stop: stop}, ctx, nil
}

// Close ends the connection.
func (c *Connection) Close() {
	c.stop(nil)
	c.Conn.Close()
}

// jetStream returns the JetStream that a context of the nats command names: by
// domain, by the prefix of its API, or that of the account.
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

func (o *Options) connect(refused func(*PermissionError)) (*nats.Conn, natscontext.Settings, error) {
	opts := []nats.Option{
		nats.Name("curlctl"),
		nats.Timeout(o.Timeout),
		nats.MaxReconnects(-1),
		func(n *nats.Options) error {
			if n.InboxPrefix == "" {
				n.InboxPrefix = service.InboxPrefix("curlctl")
			}
			return nil
		},
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if e := refusal(err); e != nil {
				refused(e)
			}
		}),
	}
	if err := o.Files.Validate(); err != nil {
		return nil, natscontext.Settings{}, err
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
		return " at " + service.RedactServers(o.URL)
	case o.Context != "":
		return " by context " + o.Context
	}
	return " by the selected context, or at " + nats.DefaultURL + " without one (give --nats-url or --context)"
}

// plain returns an error without what its text repeats of a URL.
func plain(err error) error {
	for _, known := range []error{nats.ErrNoServers, nats.ErrAuthorization, nats.ErrTimeout, nats.ErrSecureConnRequired} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}
