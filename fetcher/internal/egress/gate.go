package egress

import (
	"cmp"
	"fmt"
	"net"
	"time"

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
	// Deny can deny a permitted attempt just before it connects.
	Deny func(network, address string) error
}

// Gate holds the policies of all namespaces. It is safe for concurrent use.
type Gate struct {
	base     Config
	dialling dialling
	fixed    *policies
	file     *reload.File[*policies]
}

// New validates the configuration of the flags and the file.
func New(cfg Config, deps Deps) (*Gate, error) {
	g := &Gate{base: cfg, dialling: dialling{
		resolver: abortingResolver(deps.Resolver), timeout: cmp.Or(deps.DialTimeout, DefaultDialTimeout), deny: deps.Deny,
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
func (g *Gate) For(namespace string) *Policy {
	return g.current().of(namespace)
}

func (g *Gate) current() *policies { return cmp.Or(g.file.Value(), g.fixed) }

// DialTimeout returns the time limit of one dial.
func (g *Gate) DialTimeout() time.Duration { return g.dialling.timeout }
