package local

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/writer"
)

// Config configures the assembled system.
type Config struct {
	// DataDir keeps the streams and the local control plane. If it is empty, Run uses a temporary folder and
	// removes it at the end.
	DataDir string
	// NATSListen is the address of the embedded broker for other programs, or empty for
	// none.
	NATSListen string
	// Watchers installs the custom resource Watcher and runs keeper. Our own control plane always has
	// them.
	Watchers bool
	// Sidecars implies Watchers, and installs the policies that inject sidecars into pods. Our own
	// control plane has them if its Kubernetes is 1.36 or later.
	Sidecars bool
	// ours means that we run the control plane.
	ours bool
	// Addresses serve the health and the metrics of all services.
	Addresses process.Addresses
	// Log configures the log.
	Log process.LogOptions
	// Watcher, Fetcher and Writer configure the services. Options that several services have are taken from
	// Watcher.
	Watcher watcher.Config
	Fetcher fetcher.Config
	Writer  writer.Config
	// Output receives the log. The default is standard error.
	Output io.Writer
	// Spans receives the spans of all services. By default, OTEL_* variables decide.
	Spans sdktrace.SpanProcessor
}

// DefaultConfig returns the configuration before any flag is set.
func DefaultConfig() Config { return Config{Fetcher: fetcher.DefaultConfig()} }

// BindFlags adds the flags of the assembled system.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.DataDir, "data-dir", defaultDataDir(),
		"folder for the streams and the local control plane (empty: a temporary one)")
	fs.BoolVar(&c.Watchers, "watchers", false,
		"install the custom resource Watcher in the given cluster and run keeper (always on with a local control plane)")
	fs.BoolVar(&c.Sidecars, "sidecars", false,
		"also install the policies that inject sidecars of Watchers into pods (needs Kubernetes 1.36, implies --watchers)")
	fs.StringVar(&c.NATSListen, "nats-listen", "",
		"address of the embedded NATS for other programs, such as 127.0.0.1:4222 (empty: none)")
	c.Addresses.BindFlags(fs, "")
	c.Log.BindFlags(fs)
	// The other flags of the services keep their defaults.
	pick(fs, c.Watcher.BindFlags, "kubeconfig", "kube-context", "namespaces", "protected-namespaces", "selector",
		"annotation-keys", "default-scheme", "min-refresh")
	pick(fs, c.Fetcher.BindFlags, "allow-cidr", "deny-cidr", "allow-host", "deny-host", "allow-port", "policy",
		"ca-bundle", "header-file")
	pick(fs, c.Writer.BindFlags, "prune")
}

// pick adds some of the flags that bind defines.
func pick(fs *pflag.FlagSet, bind func(*pflag.FlagSet), names ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(all)
	all.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(names, f.Name) {
			fs.AddFlag(f)
		}
	})
}

// Validate copies the common flags to the writer, and checks the flags of all services.
func (c *Config) Validate() error {
	c.Writer.Selection = c.Watcher.Selection
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
