package get

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// Deps are the dependencies of a Client. Only the gate is required.
type Deps struct {
	// Gate is the egress policy.
	Gate *egress.Gate
	// Observe receives the context of Do and the duration of each phase. Calls may overlap. A failed phase counts only
	// towards the total. Nil means none.
	Observe func(context.Context, Phase, time.Duration)
	// Now is the clock for dates in Retry-After; nil means time.Now.
	Now func() time.Time
	// OnReload is called for each new content of a file, such as the policy and the header file:
	// with nil if it is in force, or with the reason why the previous content stays in force. It
	// never receives the content.
	OnReload func(path string, err error)
	// Ticks trigger checks of the files (nil means every five seconds).
	Ticks <-chan time.Time
}

// Client makes GETs. It is safe for concurrent use.
type Client struct {
	cfg   Config
	deps  Deps
	proxy *url.URL

	roots   *reload.File[*x509.CertPool]
	headers *reload.File[*headerFile]
	team    *reload.File[*headerFile]
}

// New reads the files of a valid configuration.
func New(cfg Config, deps Deps) (*Client, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Observe == nil {
		deps.Observe = func(context.Context, Phase, time.Duration) {}
	}
	c := &Client{cfg: cfg, deps: deps}
	var errs [4]error
	c.proxy, errs[0] = cfg.proxy()
	c.roots, errs[1] = open(cfg.CABundle, parseBundle)
	c.headers, errs[2] = open(cfg.HeaderFile, parserOfHeaders(cfg.HeaderFile))
	if cfg.TeamFile != "" {
		c.team, errs[3] = reload.OpenOptional(cfg.TeamFile, parseTeamFile)
	}
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, fmt.Errorf("set up GET: %w", err)
	}
	return c, nil
}

func open[T any](path string, parse func([]byte) (T, error)) (*reload.File[T], error) {
	if path == "" {
		return nil, nil
	}
	return reload.Open(path, parse)
}

// Run reloads the files and the file of the gate when they change, until ctx is done.
func (c *Client) Run(ctx context.Context) error {
	reload.Run(ctx, c.deps.Ticks, func() {
		c.deps.Gate.Look(c.deps.OnReload)
		c.roots.Look(c.deps.OnReload)
		c.headers.Look(c.deps.OnReload)
		c.team.Look(c.deps.OnReload)
		if c.headers != nil {
			c.headers.Value().look(c.deps.OnReload)
		}
	})
	return nil
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
	if u, err := egress.ParseURL(r.URL); err == nil {
		if c.headers != nil {
			r.grants.operator = c.headers.Value().forHost(r.Namespace, u.Hostname())
		}
		if c.team != nil {
			r.grants.team = c.team.Value().forHost(r.Namespace, u.Hostname())
		}
	}
	r.Namespace = ""
	return r
}
