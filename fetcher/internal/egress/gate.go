package egress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// DefaultDialTimeout is the default time limit of one dial, with the lookup and all addresses.
const DefaultDialTimeout = 3 * time.Second

// Deps are the dependencies of a Gate. The zero value is valid.
type Deps struct {
	// File is the path of the file with the policies of namespaces. Empty means none.
	File string
	// DialTimeout is the time limit of one dial. Zero means DefaultDialTimeout.
	DialTimeout time.Duration
	// Resolver has the name servers to ask in its Dial. Nil means the name servers of resolv.conf.
	Resolver *net.Resolver
}

// Gate holds the policies of all namespaces. It is safe for concurrent use.
type Gate struct {
	base     Config
	dialling *dialling
	fixed    *policies
	file     *reload.File[*policies]
}

// New validates the configuration of the flags and the file.
func New(cfg Config, deps Deps) (*Gate, error) {
	g := &Gate{base: cfg, dialling: &dialling{
		resolver: abortingResolver(deps.Resolver), timeout: cmp.Or(deps.DialTimeout, DefaultDialTimeout),
	}}
	var err error
	if deps.File != "" {
		g.file, err = reload.Open(deps.File, g.parse)
	} else {
		g.fixed, err = newPolicies(cfg, nil, g.dialling)
	}
	if err != nil {
		return nil, fmt.Errorf("set up egress policy: %w", err)
	}
	return g, nil
}

// Poll reads the file again, like reload.File.
func (g *Gate) Poll(report func(path string, err error)) { g.file.Poll(report) }

// For returns the current policy of a namespace. Callers must ask again for every fetch.
func (g *Gate) For(namespace string) *Policy { return cmp.Or(g.file.Value(), g.fixed).of(namespace) }

// Preview checks the URL of a namespace and looks up its name like a fetch, but does not connect. The reason is one
// sentence without an address. The error is nil if the URL is permitted, or else a *DeniedError or the error of the
// lookup.
func (g *Gate) Preview(ctx context.Context, namespace, raw string) (reason string, err error) {
	u, err := ParseURL(raw)
	if err != nil {
		return err.Error(), err
	}
	p := g.For(namespace)
	t, addrs, err := p.resolve(ctx, u)
	permitted := 0
	var denial error
	for _, addr := range addrs {
		if err := p.checkAddress(t, addr); err != nil {
			denial = err
			continue
		}
		permitted++
	}
	switch {
	case errors.Is(err, ErrDenied):
		return err.Error(), err
	case err != nil:
		return t.name + " does not resolve", err
	case len(addrs) == 0:
		return "the name is permitted, and the egress proxy resolves it and checks its addresses", nil
	case permitted == 0:
		return denial.Error(), denial
	case permitted < len(addrs):
		return fmt.Sprintf("%d of %d addresses of %s are permitted, the others are skipped",
			permitted, len(addrs), t.name), nil
	case t.addr.IsValid():
		return "the address is permitted", nil
	}
	return fmt.Sprintf("all addresses of %s are permitted", t.name), nil
}

// DialTimeout returns the time limit of one dial.
func (g *Gate) DialTimeout() time.Duration { return g.dialling.timeout }

// document is the content of the file of --policy.
type document struct {
	// Policies add to the policy of the flags.
	Policies []entry `yaml:"policies"`
}

// entry adds to the policy of some namespaces.
type entry struct {
	// Namespaces are names or patterns with *.
	Namespaces []string `yaml:"namespaces"`
	Config     `yaml:",inline"`
}

// parse parses the file. An unknown field is an error, because a misspelt deny-cidr would allow more than intended.
func (g *Gate) parse(content []byte) (*policies, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var doc document
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	// An empty file was probably read during a write.
	if doc.Policies == nil {
		return nil, errors.New("the file has no list \"policies\"")
	}
	if err := decoder.Decode(new(document)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one document")
	}
	return newPolicies(g.base, doc.Policies, g.dialling)
}

// policies are the policies of all namespaces, for one content of the file.
type policies struct {
	base     Config
	entries  []entry
	patterns [][]Pattern
	dialling *dialling

	mu   sync.Mutex
	made map[string]*Policy
}

func newPolicies(base Config, entries []entry, d *dialling) (*policies, error) {
	if err := base.Validate(); err != nil {
		return nil, err
	}
	p := &policies{base: base, entries: entries, dialling: d, made: map[string]*Policy{}}
	for i, e := range entries {
		if len(e.Namespaces) == 0 {
			return nil, fmt.Errorf("policies[%d] names no namespaces: write namespaces: [\"*\"] for all", i)
		}
		names, err := each("namespaces", e.Namespaces, ParsePattern)
		if err := cmp.Or(err, e.Validate()); err != nil {
			return nil, fmt.Errorf("policies[%d]: %w", i, err)
		}
		p.patterns = append(p.patterns, names)
	}
	return p, nil
}

// of returns the policy of a namespace. Namespaces with the same entries share one, which limits
// their number to the combinations of entries.
func (p *policies) of(namespace string) *Policy {
	var matching strings.Builder
	cfg := p.base
	for i, names := range p.patterns {
		if matchesAny(names, namespace) {
			_, _ = fmt.Fprintf(&matching, "%d,", i)
			cfg = cfg.with(p.entries[i].Config)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	made, ok := p.made[matching.String()]
	if !ok {
		// All parts are valid, so their sum is, too.
		made, _ = newPolicy(cfg, p.dialling)
		p.made[matching.String()] = made
	}
	return made
}
