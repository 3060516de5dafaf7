package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kv8s/curl-me-that/proto/service/reload"
)

// DefaultDialTimeout bounds one dial, lookup and all addresses included.
const DefaultDialTimeout = 3 * time.Second

// Deps are what a Gate works with. The zero value is complete.
type Deps struct {
	// File is the path of the file with the policies of namespaces; empty: none.
	File string
	// DialTimeout bounds one dial; zero: DefaultDialTimeout.
	DialTimeout time.Duration
	// Resolver has by its Dial the name servers to ask; nil: the name servers of
	// resolv.conf.
	Resolver *net.Resolver
	// Refuse has the last word about a permitted attempt, before it connects.
	Refuse func(network, address string) error
	// OnReload is called for each new content of File: nil if it is in force, else
	// why the one before stays in force.
	OnReload func(path string, err error)
	// Ticks are when to look at File; nil: every five seconds.
	Ticks <-chan time.Time
}

// Gate holds the policies of all namespaces. It is safe for concurrent use.
type Gate struct {
	deps  Deps
	base  Config
	fixed *policies
	file  *reload.File[*policies]
}

// New checks the configuration of the flags and the file.
func New(cfg Config, deps Deps) (*Gate, error) {
	if deps.DialTimeout == 0 {
		deps.DialTimeout = DefaultDialTimeout
	}
	if deps.DialTimeout < 0 {
		return nil, errors.New("set up egress policy: dial timeout must be positive")
	}
	deps.Resolver = abortingResolver(deps.Resolver)
	g := &Gate{deps: deps, base: cfg}
	var err error
	if deps.File != "" {
		g.file, err = reload.Open(deps.File, g.parse)
	} else {
		g.fixed, err = newPolicies(cfg, nil, g.dialling())
	}
	if err != nil {
		return nil, fmt.Errorf("set up egress policy: %w", err)
	}
	return g, nil
}

func (g *Gate) dialling() dialling {
	return dialling{resolver: g.deps.Resolver, timeout: g.deps.DialTimeout, refuse: g.deps.Refuse}
}

// Run follows the file until ctx is done; without a file it just waits.
func (g *Gate) Run(ctx context.Context) error {
	if g.file == nil {
		<-ctx.Done()
		return nil
	}
	reload.Run(ctx, g.deps.Ticks, func() { g.file.Look(g.deps.OnReload) })
	return nil
}

// For returns the policy of a namespace as it is now. The caller asks again
// for every fetch.
func (g *Gate) For(namespace string) *Policy {
	return g.current().of(namespace)
}

// InForce reports whether a policy that For has returned would be returned
// still. Connections made under one that is not must not be used again.
func (g *Gate) InForce(p *Policy) bool { return g.current().has(p) }

func (g *Gate) current() *policies {
	if g.file != nil {
		return g.file.Value()
	}
	return g.fixed
}

// DialTimeout returns the bound of one dial.
func (g *Gate) DialTimeout() time.Duration { return g.deps.DialTimeout }

// Verdict decides about a URL with all its addresses; see Policy.Verdict.
func (g *Gate) Verdict(ctx context.Context, namespace, raw string) Verdict {
	return g.For(namespace).Verdict(ctx, raw)
}
