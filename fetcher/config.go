package fetcher

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Config is what an operator may choose about a fetcher. Start from
// DefaultConfig.
type Config struct {
	// Egress lists what the egress policy opens and closes.
	Egress egress.Config
	// PolicyFile is the path of a file with policies of namespaces.
	PolicyFile string
	// DialTimeout bounds one dial, lookup included.
	DialTimeout time.Duration
	// Get bounds one GET.
	Get get.Config
	// Throttle bounds the GETs at a time; its Slots are also the number of
	// messages in work.
	Throttle throttle.Config
	// TrustedKeys is the file with the public NKeys of the watcher, one or two; empty:
	// credentials go with every want, whoever has published it.
	TrustedKeys string
	// Engine configures how messages are handled.
	Engine engine.Config
}

// DefaultConfig returns what a fetcher does without any flag.
func DefaultConfig() Config {
	c := Config{
		DialTimeout: egress.DefaultDialTimeout,
		Get:         get.Defaults(),
		Throttle:    throttle.Defaults(),
		Engine: engine.Config{
			MaxAttempts:   6,
			MaxUnended:    pipeline.DefaultMaxUnended,
			Retry:         schedule.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
			MaxRetryAfter: time.Hour,
			Refresh:       schedule.Refresh{Min: 10 * time.Second, Max: 24 * time.Hour, Jitter: 0.05},
			Recheck:       time.Hour,
			Sharing:       sharedcall.Config{Window: time.Second, JoinWithin: 250 * time.Millisecond, Entries: 1024},
			DeadLetters:   budget.Config{Burst: 20_000, Refill: 6 * time.Hour},
			ResultBytes:   budget.Config{Burst: 512 << 20, Refill: 64 * time.Second},
		},
	}
	c.Get.Version = process.BuildVersion()
	return c
}

// BindFlags adds the flags; what the configuration holds are their defaults.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.BindPolicyFlags(fs)
	c.bindGet(fs)
	c.bindThrottle(fs)
	c.bindSchedule(fs)
	c.bindBudgets(fs)
}

// BindPolicyFlags adds the flags of the egress policy, which commands have that check
// URLs, too.
func (c *Config) BindPolicyFlags(fs *pflag.FlagSet) {
	e := &c.Egress
	fs.StringSliceVar(&e.AllowCIDRs, "allow-cidr", e.AllowCIDRs, "address ranges that may be reached at any port and by any name")
	fs.StringSliceVar(&e.DenyCIDRs, "deny-cidr", e.DenyCIDRs, "address ranges that may never be reached, such as the cluster's own")
	fs.StringSliceVar(&e.AllowHosts, "allow-host", e.AllowHosts, "host patterns that may be reached though they have one label or a reserved suffix")
	fs.StringSliceVar(&e.DenyHosts, "deny-host", e.DenyHosts, "host patterns that may never be reached")
	fs.StringSliceVar(&e.OnlyHosts, "only-host", e.OnlyHosts, "the host patterns that may be reached; none: all")
	fs.IntSliceVar(&e.AllowPorts, "allow-port", e.AllowPorts, "ports that may be reached beside 80, 443, 8080 and 8443")
	fs.StringSliceVar(&e.NAT64, "nat64-prefix", e.NAT64, "prefixes by which the network translates IPv6 to IPv4: their addresses are treated as the IPv4 ones in them")
	fs.StringVar(&c.PolicyFile, "policy", c.PolicyFile, "file with additions to the egress policy by namespace; read again on change")
	fs.StringVar(&c.Get.Netrc, "netrc", c.Get.Netrc, "netrc file with credentials for hosts; read again on change")
	fs.StringVar(&c.Get.HeaderFile, "header-file", c.Get.HeaderFile, "file with headers to send to hosts; read again on change")
	duration.Var(fs, &c.DialTimeout, "dial-timeout", c.DialTimeout, "time for a name lookup and a connection")
}

func (c *Config) bindGet(fs *pflag.FlagSet) {
	g := &c.Get
	fs.Int64Var(&g.MaxBody, "max-body", g.MaxBody, "largest body in bytes; the broker's max_payload bounds it, too")
	fs.IntVar(&g.MaxRedirects, "max-redirects", g.MaxRedirects, "how many redirects are followed")
	duration.Var(fs, &g.Timeout, "timeout", g.Timeout, "time for a GET in all")
	duration.Var(fs, &g.TLSTimeout, "tls-timeout", g.TLSTimeout, "time for a TLS handshake")
	duration.Var(fs, &g.HeaderTimeout, "header-timeout", g.HeaderTimeout, "time for the headers of an answer")
	fs.StringVar(&g.CABundle, "ca-bundle", g.CABundle, "file with certificates to trust beside those of the system; read again on change")
	fs.StringVar(&c.TrustedKeys, "trusted-keys", "", "file with the public NKeys, one or two, of which one signs the watcher's wants; without it credentials go with every want; curlctl identities makes it")
	fs.StringVar(&g.Proxy, "proxy", g.Proxy, "URL of an egress proxy; those of the environment are not used")
}

func (c *Config) bindThrottle(fs *pflag.FlagSet) {
	a := &c.Throttle
	fs.IntVar(&a.Slots, "concurrency", a.Slots, "messages in work, thus GETs, at a time")
	fs.IntVar(&a.PerHost, "per-host", a.PerHost, "GETs at a time to one host, one of which is kept for a second namespace")
	fs.Float64Var(&a.Share, "namespace-share", a.Share, "part of the concurrency that one namespace may hold while others want it, above 0 to 1")
}

func (c *Config) bindSchedule(fs *pflag.FlagSet) {
	e := &c.Engine
	fs.Uint32Var(&e.MaxAttempts, "max-attempts", e.MaxAttempts, "attempts in a row before a failure becomes a dead letter")
	fs.Uint64Var(&e.MaxUnended, "max-deliver", e.MaxUnended, "handlings of one message that may begin without an end, as by a crash, before it becomes a dead letter")
	duration.Var(fs, &e.Retry.Base, "retry-base", e.Retry.Base, "pause after the first failed attempt; doubles with each further one")
	duration.Var(fs, &e.Retry.Max, "retry-max", e.Retry.Max, "longest pause between attempts")
	duration.Var(fs, &e.MaxRetryAfter, "max-retry-after", e.MaxRetryAfter, "longest pause that a server may ask for by Retry-After")
	duration.Var(fs, &e.Recheck, "recheck", e.Recheck, "pause after the last failed attempt of a key without refresh")
	duration.Var(fs, &e.Refresh.Min, "min-refresh", e.Refresh.Min, "shortest interval of regular fetches")
	duration.Var(fs, &e.Refresh.Max, "max-refresh", e.Refresh.Max, "longest interval that a server may ask for by Cache-Control")
	fs.Float64Var(&e.Refresh.Jitter, "refresh-jitter", e.Refresh.Jitter, "part of the interval by which regular fetches stray, 0 to 0.25")
}

func (c *Config) bindBudgets(fs *pflag.FlagSet) {
	e := &c.Engine
	fs.Int64Var(&e.ResultBytes.Burst, "namespace-result-bytes", e.ResultBytes.Burst,
		"bytes of bodies that one namespace may publish at once, which come back in 64 s; 0: no bound")
	fs.Int64Var(&e.DeadLetters.Burst, "namespace-dead-letters", e.DeadLetters.Burst,
		"dead letters that are kept at once for one namespace, which come back in 6 h; 0: no bound")
}

// verifier reads TrustedKeys; nil: there are none.
func (c *Config) verifier() (*signature.Verifier, error) {
	if c.TrustedKeys == "" {
		return nil, nil //nolint:nilnil // without keys nothing is verified
	}
	v, err := signature.LoadVerifier(c.TrustedKeys)
	if err != nil {
		return nil, fmt.Errorf("--trusted-keys: %w", err)
	}
	return v, nil
}

// maxTimeout is what a GET may take so that a drain ends within 30 s.
const maxTimeout = 20 * time.Second

// Validate names the first flag that cannot be used.
func (c *Config) Validate() error {
	switch {
	case c.DialTimeout <= 0:
		return errors.New("--dial-timeout must be positive")
	case c.Get.Timeout <= 0 || c.Get.Timeout > maxTimeout:
		return fmt.Errorf("--timeout must be positive and at most %s", maxTimeout)
	}
	if err := c.Egress.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if _, err := c.verifier(); err != nil {
		return err
	}
	return cmp.Or(c.Throttle.Validate(), c.Get.Validate(), c.Engine.Validate())
}
