package get

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// Config has the limits of a GET. Start from Defaults. egress.Deps has the time limit of a dial.
type Config struct {
	// Version is the version of this program, for the User-Agent.
	Version string
	// MaxBody is the maximum size of a body, in bytes.
	MaxBody int64
	// Timeout is the time limit for everything: all hops and the body.
	Timeout time.Duration
	// TLSTimeout is the time limit of one TLS handshake.
	TLSTimeout time.Duration
	// HeaderTimeout is how long to wait for the headers of one response.
	HeaderTimeout time.Duration
	// CABundle is the path of PEM certificates that are trusted in addition to the system's; empty means none.
	CABundle string
	// HeaderFile is the path of a file with headers per host (empty means none).
	HeaderFile string
	// TenantFile is the path of the file that keeper compiles from the Secrets of teams; empty means
	// none. The header file takes precedence.
	TenantFile string
	// Proxy is the URL of the operator's egress proxy; empty means none. Proxies in the environment are never used.
	Proxy string
}

// Defaults returns the configuration without any file or proxy.
func Defaults() Config {
	return Config{
		Version:       "devel",
		MaxBody:       1_000_000,
		Timeout:       10 * time.Second,
		TLSTimeout:    3 * time.Second,
		HeaderTimeout: 5 * time.Second,
	}
}

// ProxyURL parses Proxy (nil means none). Errors do not contain its credentials.
func (c *Config) ProxyURL() (*url.URL, error) {
	if c.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Proxy)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("proxy must be a URL such as http://proxy.example.com:3128")
	}
	return u, nil
}

// Deps are the dependencies of a Client. Only the gate is required.
type Deps struct {
	// Gate is the egress policy.
	Gate *egress.Gate
	// Now is the clock for dates in Retry-After; nil means time.Now.
	Now func() time.Time
	// OnReload is called for each new content of a file, such as the policy and the header file: with nil if it is in
	// force, or with the reason why the previous content stays in force. It never receives the content.
	OnReload func(path string, err error)
	// Ticks trigger checks of the files (nil means every five seconds).
	Ticks <-chan time.Time
}

// Client makes GETs. It is safe for concurrent use.
type Client struct {
	cfg   Config
	deps  Deps
	proxy *url.URL

	roots *reload.File[*x509.CertPool]
	// headerFiles holds the file of the operator, then that of the teams. Nil means no file.
	headerFiles [2]*reload.File[*headerFile]
}

// New reads the files of a valid configuration.
func New(cfg Config, deps Deps) (*Client, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	c := &Client{cfg: cfg, deps: deps}
	var errs [4]error
	c.proxy, errs[0] = cfg.ProxyURL()
	if cfg.CABundle != "" {
		c.roots, errs[1] = reload.Open(cfg.CABundle, parseBundle)
	}
	if cfg.HeaderFile != "" {
		c.headerFiles[0], errs[2] = reload.Open(cfg.HeaderFile, func(content []byte) (*headerFile, error) {
			return parseHeaderFile(content, filepath.Dir(cfg.HeaderFile))
		})
	}
	if cfg.TenantFile != "" {
		c.headerFiles[1], errs[3] = reload.OpenOptional(cfg.TenantFile, parseTenantFile)
	}
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, fmt.Errorf("set up GET: %w", err)
	}
	return c, nil
}

// parseBundle returns the system's roots and the certificates of a bundle.
func parseBundle(pem []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("load the system's certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no PEM certificate in it")
	}
	return pool, nil
}

// Run reloads the files and the file of the gate when they change, until ctx is done.
func (c *Client) Run(ctx context.Context) {
	reload.Run(ctx, c.deps.Ticks, func() {
		c.deps.Gate.Poll(c.deps.OnReload)
		c.roots.Poll(c.deps.OnReload)
		for _, file := range c.headerFiles {
			if file.Poll(c.deps.OnReload); file != nil {
				file.Value().poll(c.deps.OnReload)
			}
		}
	})
}

// isDirect reports whether a host is reached without a proxy.
func (c *Client) isDirect(policy *egress.Policy, host string) bool {
	return c.proxy == nil || policy.IsDirect(host)
}

// Resolve replaces the namespace of a request by its policy and by the header file entries that any
// hop may use. Equal resolved requests may share one GET.
func (c *Client) Resolve(r Request) Request {
	if r.policy != nil {
		return r
	}
	r.policy = c.deps.Gate.For(r.Namespace)
	for i, file := range c.headerFiles {
		if file == nil {
			continue
		}
		if u, err := egress.ParseURL(r.URL); err == nil {
			r.grants[i] = file.Value().forHost(r.Namespace, u.Hostname())
		}
	}
	r.Namespace = ""
	return r
}

// Request describes one GET.
type Request struct {
	// URL is absolute, including the scheme.
	URL string
	// Namespace of the ConfigMap, which determines the policy and the credentials.
	Namespace string
	// Validators of the current body make the request conditional, if it reaches their URL.
	Validators
	// Untrusted reports that the request may not come from the watcher. A hop that would carry
	// credentials then fails instead.
	Untrusted bool
	// Observer is told about the GET. Nil means none.
	Observer *Observer

	// policy and grants replace Namespace in a resolved request. Hops use only these, so a
	// concurrent reload cannot add credentials.
	policy *egress.Policy
	grants grants
}

// MayCarry reports whether a hop of a resolved request may carry credentials, possibly with another
// scheme, port or path of the host.
func (r Request) MayCarry() bool { return r.grants != (grants{}) }

// Response is a successful response: a 200, or a 304 to a conditional request.
type Response struct {
	// NotModified: the response is a 304, without a body.
	NotModified bool
	// Body as received; may be empty.
	Body []byte
	// SHA256 of Body, 64 lower-case hexadecimal digits.
	SHA256 string
	// Credential: a request on the way to the body was sent with a credential.
	Credential bool
	// Validators of the body. A 304 does not change them.
	Validators
}
