package local

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/writer"
)

// Config is what may be chosen about the assembled system.
type Config struct {
	// DataDir keeps the streams and the local control plane. Empty: a
	// temporary folder that is removed in the end.
	DataDir string
	// BuildControlPlane takes no control plane that others have built.
	BuildControlPlane bool
	// NATSListen opens the embedded broker to other programs; empty: no.
	NATSListen string
	// Watchers: install the custom resource Watcher and run keeper. Both are always
	// there with a control plane of our own.
	Watchers bool
	// Sidecars: as Watchers, and install the policies by which pods get their
	// sidecars. A control plane of our own has them if it is of Kubernetes 1.36 or
	// later.
	Sidecars bool
	// ours: the control plane is our own, and may lack what a flag did not ask for.
	ours bool
	// Addresses for health and metrics of all services.
	Addresses service.Addresses
	// Log is what is logged.
	Log service.LogOptions
	// The services. What they share is taken from the watcher's.
	Watcher watcher.Config
	Fetcher fetcher.Config
	Writer  writer.Config
	// Output takes the log; nil: standard error.
	Output io.Writer
	// Spans takes the spans of all services; nil: the variables OTEL_*
	// decide where they go.
	Spans sdktrace.SpanProcessor
}

// DefaultConfig returns the configuration without any flag.
func DefaultConfig() Config { return Config{Fetcher: fetcher.DefaultConfig()} }

// Flags that are passed on to the services; the others have their defaults.
func passedOn() (ofWatcher, ofFetcher, ofWriter []string) {
	return []string{"kubeconfig", "kube-context", "namespaces", "protected-namespaces", "selector", "annotation-keys", "default-scheme", "min-refresh"},
		[]string{"allow-cidr", "deny-cidr", "allow-host", "deny-host", "allow-port", "policy", "ca-bundle", "netrc", "header-file"},
		[]string{"prune"}
}

// BindFlags adds the flags of the assembled system.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.DataDir, "data-dir", defaultDataDir(), "folder for the streams and the local control plane; empty: a temporary one")
	fs.BoolVar(&c.BuildControlPlane, "build", false, "build etcd and kube-apiserver from source, whatever is found on this machine or can be fetched")
	fs.BoolVar(&c.Watchers, "watchers", false, "install the custom resource Watcher in the given cluster, and run keeper; a control plane of its own has both")
	fs.BoolVar(&c.Sidecars, "sidecars", false, "as --watchers, and install the policies by which pods get the sidecars of Watchers, for Kubernetes 1.36 or later")
	fs.StringVar(&c.NATSListen, "nats-listen", "", "address at which other programs reach the embedded NATS, such as 127.0.0.1:4222; empty: none")
	c.Addresses.BindFlags(fs, "")
	c.Log.BindFlags(fs)
	ofWatcher, ofFetcher, ofWriter := passedOn()
	pick(fs, c.Watcher.BindFlags, ofWatcher)
	pick(fs, c.Fetcher.BindFlags, ofFetcher)
	pick(fs, c.Writer.BindFlags, ofWriter)
}

// pick adds the named flags out of those that bind defines.
func pick(fs *pflag.FlagSet, bind func(*pflag.FlagSet), names []string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(all)
	all.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(names, f.Name) {
			fs.AddFlag(f)
		}
	})
}

// Validate returns the first thing that is wrong, as a sentence.
func (c *Config) Validate() error {
	c.Writer.Grammar, c.Writer.Protected, c.Writer.Selector = c.Watcher.Grammar, c.Watcher.Protected, c.Watcher.Selector
	if err := c.Watcher.Validate(); err != nil {
		return err
	}
	if err := c.Fetcher.Validate(); err != nil {
		return err
	}
	return c.Writer.Validate()
}

// defaultDataDir follows the XDG Base Directory Specification.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "curl-me-that")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "curl-me-that")
}

// openDataDir returns the folder to use and what removes it if it is temporary.
func (c *Config) openDataDir() (dir string, remove func(), err error) {
	if c.DataDir == "" {
		if dir, err = os.MkdirTemp("", "curl-me-that-"); err != nil {
			return "", nil, fmt.Errorf("make a folder for the data: %w", err)
		}
		return dir, func() { _ = os.RemoveAll(dir) }, nil
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return "", nil, fmt.Errorf("--data-dir: %w", err)
	}
	return c.DataDir, func() {}, nil
}
