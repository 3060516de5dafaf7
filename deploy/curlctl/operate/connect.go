package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

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
	Client    *Client
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
		Conn: nc, JetStream: js, Client: NewClient(js), Where: nc.ConnectedUrlRedacted(), Refusals: refusals,
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

// Refusals notes the permission violations on a connection. The zero value is ready.
type Refusals struct {
	mu      sync.Mutex
	last    *PermissionError
	waiting map[context.Context]context.CancelCauseFunc
}

func (r *Refusals) add(e *PermissionError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = e
	for _, end := range r.waiting {
		end(e)
	}
}

// CancelOnDenied returns a context that ends at the next violation, with a *PermissionError as its cause. Without
// it, the denied request would wait until its timeout.
func (r *Refusals) CancelOnDenied(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[context.Context]context.CancelCauseFunc{}
	}
	r.waiting[ctx] = end
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, ctx)
		end(nil)
	}
}

// Since returns the last violation, or nil if it was before a time.
func (r *Refusals) Since(at time.Time) *PermissionError {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || r.last.at.Before(at) {
		return nil
	}
	return r.last
}

// ErrNoConnection means that no server accepted the connection.
var ErrNoConnection = errors.New("cannot connect to NATS")

// PermissionError means that the server denied an operation.
type PermissionError struct {
	// Operation is "publish to" or "subscribe to", if the server names it.
	Operation string
	// Subject of the operation.
	Subject string

	at time.Time
}

// Error implements error.
func (e *PermissionError) Error() string {
	return "this NATS user may not " + e.Operation + " " + e.Subject +
		": use another identity (--context or --nats-creds), or ask for that permission"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// refusal parses a permission violation. It returns nil for other errors, and for the optional request of User.
func refusal(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	refused := &PermissionError{
		Operation: "do this:", Subject: "the server did not name the subject", at: time.Now(),
	}
	if match := violation.FindStringSubmatch(err.Error()); match != nil {
		refused.Operation, refused.Subject = "publish to", match[2]
		if strings.EqualFold(match[1], "subscription") {
			refused.Operation = "subscribe to"
		}
	}
	if refused.Subject == userInfo {
		return nil
	}
	return refused
}

// userInfo is the subject on which the server reports the user of a connection.
const userInfo = "$SYS.REQ.USER.INFO"

// userTimeout limits that request. Without the permission for it there is no response.
const userTimeout = 2 * time.Second

// anonymous is the name of a user without a name.
const anonymous = "anonymous"

// User is the user of a connection.
type User struct {
	// Name is a user name, a public key, or anonymous.
	Name string
	Permissions
}

// Permissions of a user (nil: everything is allowed).
type Permissions struct {
	Publish   *Rules `json:"publish"`
	Subscribe *Rules `json:"subscribe"`
}

// Rules are subjects with wildcards.
type Rules struct {
	// Allow lists allowed subjects (empty: all that are not denied).
	Allow []string `json:"allow"`
	// Deny lists denied subjects.
	Deny []string `json:"deny"`
}

// errUser means that the server gave no usable response.
var errUser = errors.New("the server did not report which user this is")

// User asks the server for the user of this connection. Without the permission to publish $SYS.REQ.USER.INFO it
// returns the name used to connect, and errUser.
func (c *Connection) User(ctx context.Context) (User, error) {
	fallback := User{Name: cmp.Or(c.Conn.Opts.User, anonymous)}
	ctx, cancel := context.WithTimeout(ctx, userTimeout)
	defer cancel()
	m, err := c.Conn.RequestWithContext(ctx, userInfo, nil)
	if err != nil {
		return fallback, errUser
	}
	var answer struct {
		Data struct {
			User        string      `json:"user"`
			UserName    string      `json:"user_name"`
			Permissions Permissions `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fallback, errUser
	}
	name := cmp.Or(answer.Data.UserName, answer.Data.User, fallback.Name)
	return User{Name: name, Permissions: answer.Data.Permissions}, nil
}
