// Package kube has the shared code of services that talk to Kubernetes: the client configuration,
// the bridge from klog, and Events. It is separate from package process, because the fetcher does
// not use Kubernetes.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process"
)

// Options select the cluster.
type Options struct {
	// Kubeconfig is a file. If empty, services use $KUBECONFIG or the service account of the pod;
	// users get $KUBECONFIG or ~/.kube/config.
	Kubeconfig string
	// Context in the kubeconfig (empty means its current one).
	Context string
}

// BindFlags adds the flags of the options for a service.
func (o *Options) BindFlags(fs *pflag.FlagSet) { o.bindFlags(fs, "the service account of the pod") }

// BindUserFlags adds the flags of the options for a program that a user runs.
func (o *Options) BindUserFlags(fs *pflag.FlagSet) { o.bindFlags(fs, "~/.kube/config") }

func (o *Options) bindFlags(fs *pflag.FlagSet, otherwise string) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else "+otherwise+")")
	fs.StringVar(&o.Context, "kube-context", "", "context in the kubeconfig (default: the current one)")
}

// Config returns the client configuration for a service. The client does not throttle requests,
// because API Priority and Fairness does (KEP-1040).
func (o *Options) Config(name string) (*rest.Config, error) {
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, 0
	config.UserAgent = "curl-me-that-" + name + "/" + process.BuildVersion()
	return config, nil
}

// ValidateNamespaces returns a sentence about the first invalid namespace in the value of a flag.
func ValidateNamespaces(flag string, names ...string) error {
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("--%s: %q is not the name of a namespace", flag, name)
		}
	}
	return nil
}

// Selection defines the objects of an installation, and how their annotations are read. It must be
// the same for all services of the installation.
type Selection struct {
	// Protected namespaces are ignored, as is kube-root-ca.crt everywhere.
	Protected []string
	// Selector is a label selector.
	Selector string
	// Grammar parses annotations.
	Grammar annotation.Options
}

// BindFlags adds the flags of the selection.
func (s *Selection) BindFlags(fs *pflag.FlagSet) {
	s.Grammar = annotation.Defaults()
	fs.StringSliceVar(&s.Protected, "protected-namespaces", annotation.DefaultProtected(), "namespaces to ignore")
	fs.StringVar(&s.Selector, "selector", annotation.Selector, "label selector, other objects are ignored")
	fs.StringSliceVar(&s.Grammar.Keys, "annotation-keys", s.Grammar.Keys, "annotations to read, in order of precedence")
	fs.StringVar(&s.Grammar.DefaultScheme, "default-scheme", s.Grammar.DefaultScheme,
		"scheme of URLs without one: http or https")
}

// Validate returns the first invalid setting, as a sentence.
func (s *Selection) Validate() error {
	if err := ValidateNamespaces("protected-namespaces", s.Protected...); err != nil {
		return err
	}
	if _, err := labels.Parse(s.Selector); err != nil {
		return fmt.Errorf("--selector: %q is not a label selector such as %s", s.Selector, annotation.Selector)
	}
	_, err := annotation.New(s.Grammar)
	return err
}

// Run runs a service that uses the cluster.
func (o *Options) Run(ctx context.Context, s *process.Options, name string,
	run func(context.Context, *process.Runtime, *rest.Config) error,
) error {
	config, err := o.Config(name)
	if err != nil {
		return err
	}
	return s.Run(ctx, name, func(ctx context.Context, rt *process.Runtime) error { return run(ctx, rt, config) })
}

func (o *Options) load() (*rest.Config, error) {
	if o.File() == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no cluster: set --kubeconfig or KUBECONFIG, or run in a pod with a service account")
		}
		if err != nil {
			return nil, fmt.Errorf("use the service account of the pod: %w", err)
		}
		return config, nil
	}
	return o.UserConfig()
}

// UserConfig returns the client configuration like kubectl: from a kubeconfig or, in a pod without
// one, from the service account.
func (o *Options) UserConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	switch file := o.File(); {
	case err == nil:
		return config, nil
	case !clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("read kubeconfig %s: %w", cmp.Or(file, "~/.kube/config"), err)
	case file == "":
		return nil, errors.New("there is no kubeconfig (set --kubeconfig or KUBECONFIG)")
	default:
		for _, path := range filepath.SplitList(file) {
			if _, err := os.Stat(path); err != nil {
				return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
			}
		}
		return nil, fmt.Errorf("kubeconfig %s has no cluster", file)
	}
}

// File returns the kubeconfig that the user gave, which may be a list in KUBECONFIG, or "".
func (o *Options) File() string {
	return cmp.Or(o.Kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
}

// BridgeKlog forwards the logs of Kubernetes libraries to the logger.
func BridgeKlog(log zerolog.Logger) {
	klog.SetLoggerWithOptions(logrOf(log), klog.ContextualLogger(true))
}

// logrOf returns the logger as a logr.Logger.
func logrOf(log zerolog.Logger) logr.Logger {
	return logr.FromSlogHandler(slog.Handler(zerolog.NewSlogHandler(log)))
}

// DebugLogr returns the logger as a logr.Logger, with everything at level debug, for libraries that log every try.
func DebugLogr(log zerolog.Logger) logr.Logger {
	if log.GetLevel() > zerolog.DebugLevel {
		return logr.Discard()
	}
	return logrOf(log)
}

// Closable returns a copy of a configuration whose connections can be closed. It detects an unavailable API server and
// dead connections in seconds instead of half a minute.
func Closable(cluster *rest.Config) (own *rest.Config, closeAll func()) {
	own = rest.CopyConfig(cluster)
	if own.Dial == nil {
		own.Dial = (&net.Dialer{
			Timeout:         5 * time.Second,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3},
		}).DialContext
	}
	dialer := connrotation.NewDialer(own.Dial)
	own.Dial = dialer.DialContext
	return own, dialer.CloseAll
}

// ParseVersion parses a resource version (0: not a number). Versions of one kind can be compared (KEP-5504).
func ParseVersion(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
