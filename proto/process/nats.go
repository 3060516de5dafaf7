package process

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// NATSOptions configure the connection to the broker.
type NATSOptions struct {
	// URL is one or more server addresses, separated by commas.
	URL string
	// Files for authentication.
	Files NATSFiles
	// Dial replaces the connection to URL, for example by one inside the process.
	Dial nats.Option
}

// BindFlags adds the flags of the options.
func (n *NATSOptions) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&n.URL, "nats-url", nats.DefaultURL, "addresses of the NATS servers, separated by commas")
	n.Files.BindFlags(fs)
}

// Validate checks the options without connecting.
func (n *NATSOptions) Validate() error {
	for server := range strings.SplitSeq(n.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" {
			return fmt.Errorf("--nats-url: %q is not an address such as nats://nats:4222", RedactServers(n.URL))
		}
	}
	return n.Files.Validate()
}

// InboxPrefix is the prefix of a program's inboxes, which permissions can refer to.
func InboxPrefix(name string) string { return "_INBOX_" + name }

// Connect returns a connection that waits for the broker, reconnects without limit, and logs each
// change of state once. Its inboxes begin with InboxPrefix.
//
// It returns once the broker has responded, or with ctx's error.
func (n *NATSOptions) Connect(
	ctx context.Context, name string, log zerolog.Logger, part *HealthPart,
) (*nats.Conn, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	state := &connectionState{log: log, part: part, servers: RedactServers(n.URL), connected: make(chan struct{})}
	sampled := log.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Minute})
	opts := []nats.Option{
		nats.Name("curl-me-that/" + name),
		nats.CustomInboxPrefix(InboxPrefix(name)),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, 500*time.Millisecond),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1), // during an outage a publish fails at once, and its caller retries
		nats.ConnectHandler(state.up),
		nats.ReconnectHandler(state.up),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { state.down(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { state.down(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			sampled.Error().Err(err).Msg("NATS reported an error")
		}),
	}
	opts = append(opts, n.Files.Options()...)
	if n.Dial != nil {
		opts = append(opts, n.Dial)
	}
	state.down(nil)
	nc, err := nats.Connect(n.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", state.servers, err)
	}
	select {
	case <-state.connected:
		return nc, nil
	case <-ctx.Done():
		nc.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", state.servers, ctx.Err())
	}
}

// connectionState logs one line per change of the connection.
type connectionState struct {
	log     zerolog.Logger
	part    *HealthPart
	servers string

	mu       sync.Mutex
	isUp     bool
	reported bool
	// connected is closed on the first connection.
	connected chan struct{}
	once      sync.Once
}

func (c *connectionState) up(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isUp {
		return
	}
	c.isUp, c.reported = true, false
	c.part.Ready()
	c.log.Info().Str("servers", c.servers).Msg("connected to NATS")
	if flaw := pipeline.ServerFlaw(nc.ConnectedServerVersion()); flaw != "" {
		c.log.Warn().Msg(flaw)
	}
	c.once.Do(func() { close(c.connected) })
}

func (c *connectionState) down(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isUp = false
	c.part.NotReady("no connection to NATS")
	if c.reported || err == nil {
		return
	}
	c.reported = true
	c.log.Warn().Err(err).Str("servers", c.servers).Msg("no connection to NATS, retrying")
}

// NATSFiles are files with which a program and the NATS servers authenticate each other. Each may
// be empty.
type NATSFiles struct {
	// Creds is a file with a user JWT and NKey seed.
	Creds string
	// NKey is a file with an NKey seed.
	NKey string
	// CA is a file with certificates to trust instead of the system's.
	CA string
	// Cert and Key are files for TLS client authentication.
	Cert, Key string
}

// BindFlags adds the flags of the files.
func (n *NATSFiles) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&n.Creds, "nats-creds", "", "file with a NATS user JWT and NKey seed")
	fs.StringVar(&n.NKey, "nats-nkey", "", "file with a NATS NKey seed")
	fs.StringVar(&n.CA, "nats-ca", "", "file with the certificates to trust for NATS")
	fs.StringVar(&n.Cert, "nats-cert", "", "file with the client certificate for NATS")
	fs.StringVar(&n.Key, "nats-key", "", "file with the key of the client certificate for NATS")
}

// Validate checks the files.
func (n *NATSFiles) Validate() error {
	for flag, file := range map[string]string{
		"nats-creds": n.Creds, "nats-nkey": n.NKey, "nats-ca": n.CA, "nats-cert": n.Cert, "nats-key": n.Key,
	} {
		if _, err := os.Stat(file); file != "" && err != nil {
			return fmt.Errorf("--%s: %w (give the path of an existing file)", flag, err)
		}
	}
	if n.Creds != "" {
		contents, err := os.ReadFile(n.Creds)
		if err == nil {
			_, err = nkeys.ParseDecoratedNKey(contents)
		}
		if err != nil {
			return fmt.Errorf("--nats-creds: %w", err)
		}
	}
	if (n.Cert == "") != (n.Key == "") {
		return errors.New("--nats-cert and --nats-key must be set together")
	}
	for _, option := range n.Options() {
		if err := option(&nats.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// Options returns the connection options for these files.
func (n *NATSFiles) Options() []nats.Option {
	var opts []nats.Option
	if n.Creds != "" {
		opts = append(opts, nats.UserCredentials(n.Creds))
	}
	if n.NKey != "" {
		opts = append(opts, named("nats-nkey", func(c *nats.Options) error {
			opt, err := nats.NkeyOptionFromSeed(n.NKey)
			if err != nil {
				return err
			}
			return opt(c)
		}))
	}
	if n.CA != "" {
		opts = append(opts, named("nats-ca", nats.RootCAs(n.CA)))
	}
	if n.Cert != "" {
		opts = append(opts, named("nats-cert", nats.ClientCert(n.Cert, n.Key)))
	}
	return opts
}

// named names the flag in the error of an option.
func named(flag string, option nats.Option) nats.Option {
	return func(o *nats.Options) error {
		if err := option(o); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		return nil
	}
}

// scheme matches the scheme of a server address.
var scheme = regexp.MustCompile(`(?i)^[a-z]+://`)

// RedactServers returns comma-separated server addresses without credentials. A password with a comma fills several
// parts, so it drops all parts from the scheme to the last one.
func RedactServers(servers string) string {
	var shown []string
	inside := false // a password that ends in the next part
	for _, part := range slices.Backward(strings.Split(servers, ",")) {
		part = strings.TrimSpace(part)
		begins, at := scheme.FindString(part), strings.LastIndexByte(part, '@')
		switch {
		case at >= 0:
			shown = append(shown, begins+part[at+1:])
			inside = begins == ""
		case inside:
			shown[len(shown)-1] = begins + shown[len(shown)-1]
			inside = begins == ""
		default:
			shown = append(shown, part)
		}
	}
	slices.Reverse(shown)
	return strings.Join(shown, ",")
}
