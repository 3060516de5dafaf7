package writer

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/signature"
)

const (
	// maxConcurrency is far more than an API server can use.
	maxConcurrency = 1024
	// maxLinger keeps a message well below the time after which it would be
	// delivered again.
	maxLinger = 5 * time.Second
)

// Config is what an operator may choose about the writer. Grammar, Protected
// and Selector must be those of the watcher.
type Config struct {
	// Service are the flags that every service has.
	Service process.Options
	// Kube selects the cluster to write to.
	Kube kube.Options
	// Concurrency is how many ConfigMaps are patched at a time. Above 32 an
	// API server on two cores answers later, not more.
	Concurrency int
	// Linger is how long the first result for a ConfigMap waits for others, to
	// become one patch with them.
	Linger time.Duration
	// Prune: a key is removed when it is no longer asked for.
	Prune bool
	// Grammar is how annotations are read. The writer does not need its
	// MinRefresh.
	Grammar annotation.Options
	// Protected namespaces are never written to, nor is kube-root-ca.crt
	// anywhere.
	Protected []string
	// Selector is a label selector; other objects are left alone. Empty: all.
	Selector string
	// TrustedKeys is the file with the public NKeys of the watcher, one or two;
	// empty: no want is trusted, and each object is read before it is written.
	TrustedKeys string
	// Writes and WriteBytes are how often, and how much, may be written in one
	// namespace.
	Writes, WriteBytes budget.Config
	// Events is how many are written for one namespace.
	Events budget.Config
}

// BindFlags adds the flags of the writer.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.BindFlags(fs, ":8083")
	c.Kube.BindFlags(fs)
	c.Grammar = annotation.Defaults()
	fs.IntVar(&c.Concurrency, "concurrency", 32, "ConfigMaps that are patched at a time")
	duration.Var(fs, &c.Linger, "linger", 2*time.Millisecond, "how long the first result for a ConfigMap waits for others, to become one patch")
	fs.BoolVar(&c.Prune, "prune", true, "remove a key that is no longer asked for")
	fs.StringSliceVar(&c.Grammar.Keys, "annotation-keys", c.Grammar.Keys, "annotations that ask for data, in order of precedence; the same as the watcher's")
	fs.StringVar(&c.Grammar.DefaultScheme, "default-scheme", c.Grammar.DefaultScheme, "scheme of URLs that have none: http or https; the same as the watcher's")
	fs.StringSliceVar(&c.Protected, "protected-namespaces", annotation.DefaultProtected(), "namespaces that are left alone")
	fs.StringVar(&c.Selector, "selector", annotation.Selector, "label selector for the ConfigMaps that may be written; the same as the watcher's")
	fs.StringVar(&c.TrustedKeys, "trusted-keys", "", "file with the public NKeys, one or two, of which one signs the watcher's wants; without it each object is read before it is written; curlctl identities makes it")
	c.bindBudgets(fs)
}

// bindBudgets adds the flags of what one namespace may use up.
func (c *Config) bindBudgets(fs *pflag.FlagSet) {
	c.Events.Refill = 500 * time.Second
	fs.Int64Var(&c.Events.Burst, "namespace-events", 1000, "Events for one namespace at once, which come back in 500 s; 0: no bound")
	c.Writes.Refill, c.WriteBytes.Refill = 1000*time.Second, 256*time.Second
	fs.Int64Var(&c.Writes.Burst, "namespace-writes", 20_000, "writes in one namespace at once, which come back in 1000 s; 0: no bound")
	fs.Int64Var(&c.WriteBytes.Burst, "namespace-write-bytes", 512<<20, "bytes written in one namespace at once, which come back in 256 s; 0: no bound")
}

// Validate returns the first thing that is wrong, as a sentence.
func (c *Config) Validate() error {
	if c.Concurrency < 1 || c.Concurrency > maxConcurrency {
		return fmt.Errorf("--concurrency: %d is not between 1 and %d", c.Concurrency, maxConcurrency)
	}
	if c.Linger < 0 || c.Linger > maxLinger {
		return fmt.Errorf("--linger: %v is not between 0s and %v", c.Linger, maxLinger)
	}
	for _, b := range []struct {
		flag string
		budget.Config
	}{{"namespace-writes", c.Writes}, {"namespace-write-bytes", c.WriteBytes}, {"namespace-events", c.Events}} {
		if b.Burst < 0 {
			return fmt.Errorf("--%s: %d is negative", b.flag, b.Burst)
		}
	}
	if err := kube.ValidateSelection(c.Protected, c.Selector); err != nil {
		return err
	}
	if _, err := signature.LoadVerifier(c.TrustedKeys); err != nil {
		return fmt.Errorf("--trusted-keys: %w", err)
	}
	_, err := annotation.New(c.Grammar)
	if errors.Is(err, annotation.ErrConfig) {
		return fmt.Errorf("--annotation-keys, --default-scheme: %w", err)
	}
	return err
}
