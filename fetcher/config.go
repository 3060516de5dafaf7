package fetcher

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Config is the configuration of a fetcher. Start from DefaultConfig.
type Config struct {
	// Egress is the egress policy of all namespaces.
	Egress egress.Config
	// PolicyFile is the path of a file with additions to it by namespace.
	PolicyFile string
	// DialTimeout is the time limit of one dial, with the lookup.
	DialTimeout time.Duration
	// Get has the limits of one GET.
	Get get.Config
	// Throttle limits concurrent GETs. Its Slots also limit the messages in flight.
	Throttle throttle.Config
	// TrustedKeys is the path of a file with one or two public NKeys of the watcher. If it is empty,
	// credentials are sent for every want, whoever published it.
	TrustedKeys string
	Engine      engine.Config
}

// DefaultConfig returns the configuration without any flag.
func DefaultConfig() Config {
	c := Config{
		DialTimeout: egress.DefaultDialTimeout,
		Get:         get.Defaults(),
		Throttle:    throttle.Defaults(),
		Engine: engine.Config{
			Schedule: engine.Schedule{
				MaxAttempts:   6,
				Retry:         engine.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
				MaxRetryAfter: time.Hour,
				Refresh:       engine.Refresh{Min: 10 * time.Second, Jitter: 0.05},
				Recheck:       time.Hour,
			},
			Sharing:     sharedcall.Config{Window: time.Second, JoinWithin: 250 * time.Millisecond, Entries: 1024},
			DeadLetters: budget.Config{Burst: 20_000, Refill: 6 * time.Hour},
			Processing:  budget.Config{Burst: int64(time.Second / 2), Refill: 5 * time.Second},
			ResultBytes: budget.Config{Burst: 512 << 20, Refill: 64 * time.Second},
		},
	}
	c.Get.Version = process.BuildVersion()
	return c
}

// BindFlags adds the flags with the current configuration as defaults.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.BindPolicyFlags(fs)
	c.bindGet(fs)
	c.bindThrottle(fs)
	c.bindSchedule(fs)
	c.bindBudgets(fs)
}

// BindPolicyFlags adds the flags of the egress policy, for commands that check URLs.
func (c *Config) BindPolicyFlags(fs *pflag.FlagSet) {
	e := &c.Egress
	fs.StringSliceVar(&e.AllowCIDRs, "allow-cidr", e.AllowCIDRs, "address ranges to allow at any port and under any name")
	fs.StringSliceVar(&e.DenyCIDRs, "deny-cidr", e.DenyCIDRs, "address ranges to deny, such as the cluster's own")
	fs.StringSliceVar(&e.AllowHosts, "allow-host", e.AllowHosts,
		"host patterns to allow despite a single label or a reserved suffix")
	fs.StringSliceVar(&e.DenyHosts, "deny-host", e.DenyHosts, "host patterns to deny")
	fs.StringSliceVar(&e.OnlyHosts, "only-host", e.OnlyHosts, "the only host patterns to allow (none: all)")
	fs.IntSliceVar(&e.AllowPorts, "allow-port", e.AllowPorts, "ports to allow in addition to 80, 443, 8080 and 8443")
	fs.StringSliceVar(&e.NAT64, "nat64-prefix", e.NAT64,
		"prefixes of the network's translation from IPv6 to IPv4, whose addresses count as the IPv4 ones in them")
	fs.StringVar(&c.PolicyFile, "policy", c.PolicyFile,
		"file with additions to the egress policy by namespace, reloaded on change")
	fs.StringVar(&c.Get.HeaderFile, "header-file", c.Get.HeaderFile,
		"file with headers to send to hosts, reloaded on change")
	fs.StringVar(&c.Get.TenantFile, "tenant-header-file", c.Get.TenantFile,
		"file that keeper --credentials compiles from the Secrets of teams, used after --header-file, reloaded on change")
	fs.StringVar(&c.Get.CABundle, "ca-bundle", c.Get.CABundle,
		"file with certificates to trust in addition to the system's, reloaded on change")
	fs.StringVar(&c.Get.Proxy, "proxy", c.Get.Proxy, "URL of an egress proxy (proxies in the environment are ignored)")
	fs.StringSliceVar(&e.DirectHosts, "direct-host", e.DirectHosts, "host patterns to reach without the proxy")
	fs.BoolVar(&e.ProxyResolves, "proxy-resolves", e.ProxyResolves,
		"check names here, and leave lookup and check of addresses to the proxy")
	duration.Var(fs, &c.DialTimeout, "dial-timeout", c.DialTimeout, "time limit of a name lookup and a connection")
}

func (c *Config) bindGet(fs *pflag.FlagSet) {
	g := &c.Get
	fs.Int64Var(&g.MaxBody, "max-body", g.MaxBody,
		"maximum size of a body in bytes, also limited by the broker's max_payload")
	duration.Var(fs, &g.Timeout, "timeout", g.Timeout, "time limit of a whole GET")
	duration.Var(fs, &g.TLSTimeout, "tls-timeout", g.TLSTimeout, "time limit of a TLS handshake")
	duration.Var(fs, &g.HeaderTimeout, "header-timeout", g.HeaderTimeout, "time limit for the headers of a response")
	fs.StringVar(&c.TrustedKeys, "trusted-keys", "", "file with one or two public NKeys of the watcher, which signs "+
		"wants, made by curlctl identities (without it credentials are sent for every want)")
}

func (c *Config) bindThrottle(fs *pflag.FlagSet) {
	t := &c.Throttle
	fs.IntVar(&t.Slots, "concurrency", t.Slots, "maximum number of concurrent GETs and messages in flight")
	fs.IntVar(&t.PerHost, "per-host", t.PerHost,
		"maximum number of concurrent GETs to one host, one of which is reserved for a second namespace")
	fs.Float64Var(&t.Share, "namespace-share", t.Share,
		"maximum fraction of the concurrency for one namespace while others wait, above 0 to 1")
}

func (c *Config) bindSchedule(fs *pflag.FlagSet) {
	e := &c.Engine
	fs.Uint32Var(&e.MaxAttempts, "max-attempts", e.MaxAttempts,
		"maximum number of attempts in a row before a failure becomes a dead letter")
	duration.Var(fs, &e.Retry.Base, "retry-base", e.Retry.Base,
		"pause after the first failed attempt, doubled after each further one")
	duration.Var(fs, &e.Retry.Max, "retry-max", e.Retry.Max, "maximum pause between attempts")
	duration.Var(fs, &e.MaxRetryAfter, "max-retry-after", e.MaxRetryAfter,
		"maximum pause that a server may request by Retry-After")
	duration.Var(fs, &e.Recheck, "recheck", e.Recheck, "pause after the last failed attempt of a key without refresh")
	duration.Var(fs, &e.Refresh.Min, "min-refresh", e.Refresh.Min, "minimum interval of regular fetches")
	fs.Float64Var(&e.Refresh.Jitter, "refresh-jitter", e.Refresh.Jitter,
		"jitter of regular fetches, as a fraction of the interval, 0 to 0.25")
}

func (c *Config) bindBudgets(fs *pflag.FlagSet) {
	e := &c.Engine
	fs.Int64Var(&e.ResultBytes.Burst, "namespace-result-bytes", e.ResultBytes.Burst,
		"budget of published bytes of one namespace, which refills in 64 s (0: no limit)")
	fs.Int64Var(&e.DeadLetters.Burst, "namespace-dead-letters", e.DeadLetters.Burst,
		"budget of dead letters of one namespace, which refills in 6 h (0: no limit)")
}

// maxTimeout is the maximum time limit of a GET, so that a drain ends within 30 s.
const maxTimeout = 20 * time.Second

// Validate returns the first invalid flag.
func (c *Config) Validate() error {
	g, t, e := &c.Get, &c.Throttle, &c.Engine
	if err := cmp.Or(
		process.CheckFlag("dial-timeout", c.DialTimeout > 0, process.Positive),
		process.CheckFlag("timeout", g.Timeout > 0 && g.Timeout <= maxTimeout, "positive and at most "+maxTimeout.String()),
		process.CheckFlag("tls-timeout", g.TLSTimeout > 0, process.Positive),
		process.CheckFlag("header-timeout", g.HeaderTimeout > 0, process.Positive),
		process.CheckFlag("max-body", g.MaxBody > 0, process.Positive),
		process.CheckFlag("concurrency", t.Slots >= 1 && t.Slots <= 4096, "from 1 to 4096"),
		process.CheckFlag("per-host", t.PerHost >= 1, process.Positive),
		process.CheckFlag("namespace-share", t.Share > 0 && t.Share <= 1, "above 0 and at most 1"),
		process.CheckFlag("max-attempts", e.MaxAttempts >= 1, process.Positive),
		process.CheckFlag("retry-base", e.Retry.Base > 0, process.Positive),
		process.CheckFlag("retry-max", e.Retry.Max >= e.Retry.Base, "at least --retry-base"),
		process.CheckFlag("max-retry-after", e.MaxRetryAfter > 0, process.Positive),
		process.CheckFlag("recheck", e.Recheck > 0, process.Positive),
		process.CheckFlag("min-refresh", e.Refresh.Min > 0, process.Positive),
		process.CheckFlag("refresh-jitter", e.Refresh.Jitter >= 0 && e.Refresh.Jitter <= 0.25, "from 0 to 0.25"),
		process.CheckFlag("namespace-result-bytes", e.ResultBytes.Burst >= 0, process.NotNegative),
		process.CheckFlag("namespace-dead-letters", e.DeadLetters.Burst >= 0, process.NotNegative),
	); err != nil {
		return err
	}
	if c.Get.Proxy == "" && (c.Egress.ProxyResolves || len(c.Egress.DirectHosts) > 0) {
		return errors.New("--proxy-resolves and --direct-host need --proxy")
	}
	if err := c.Egress.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if _, err := signature.LoadVerifier(c.TrustedKeys); err != nil {
		return fmt.Errorf("--trusted-keys: %w", err)
	}
	_, err := g.ProxyURL()
	return err
}

const (
	// envelope is the usual maximum size of a result without its body, in bytes. With a very long URL
	// or status annotation it is larger, see Engine.fit.
	envelope = 16 << 10
	// copies is the number of copies of a body in memory: as received and in a message.
	copies = 2
	// sharedBodies is the number of bodies that are kept for other fetches of the same URL.
	sharedBodies = 4
)

// limitBodies lowers the body limit to that of the broker. It fails if the bodies of all messages in
// flight do not fit into memory.
func (c *Config) limitBodies(rt *process.Runtime) error {
	maxPayload := rt.NATS.MaxPayload()
	body, err := bodyLimit(c.Get.MaxBody, maxPayload)
	if err != nil {
		return err
	}
	if err := checkMemory(c.Throttle.Slots, body, debug.SetMemoryLimit(-1)); err != nil {
		return err
	}
	rt.Log.Info().Int64("max_body", body).Int64("max_payload", maxPayload).Int("concurrency", c.Throttle.Slots).
		Msg("accepting bodies of up to max_body bytes")
	c.Get.MaxBody, c.Engine.Sharing.Bytes = body, sharedBodies*body
	return nil
}

// bodyLimit returns the maximum body size for the maximum message size of the broker.
func bodyLimit(maxBody, maxPayload int64) (int64, error) {
	if maxPayload <= envelope {
		return 0, fmt.Errorf("max_payload of the NATS server is %d bytes and leaves no room for a body, raise it above %d",
			maxPayload, envelope)
	}
	return min(maxBody, maxPayload-envelope), nil
}

// checkMemory fails if the bodies of all messages in flight exceed a memory limit.
func checkMemory(concurrency int, body, limit int64) error {
	need := float64(concurrency) * float64(body) * copies
	if need <= float64(limit) {
		return nil
	}
	const mebibyte = 1 << 20
	return fmt.Errorf("--concurrency %d times bodies of %d bytes, each held %d times, needs %.0f MiB and GOMEMLIMIT "+
		"is %.0f MiB: lower --concurrency or --max-body, or raise GOMEMLIMIT",
		concurrency, body, copies, math.Ceil(need/mebibyte), math.Floor(float64(limit)/mebibyte))
}
