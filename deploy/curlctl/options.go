package curlctl

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/kube"
)

// options are the flags of all commands.
type options struct {
	NATS      broker.Options
	Print     printer.Options
	Kube      kube.Options
	Namespace string
	// allNamespaces is the default, which people who know kubectl may say.
	allNamespaces bool
	// Now is the clock.
	Now func() time.Time
}

// BindFlags adds the flags.
func (o *options) BindFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	o.NATS.BindFlags(fs)
	o.Print.BindFlags(fs)
	o.Kube.BindUserFlags(fs)
	fs.StringVarP(&o.Namespace, "namespace", "n", "", "only this namespace (default: all)")
	fs.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all namespaces, the default")
	complete(cmd, "output", cobra.FixedCompletions(printer.Formats(), noFiles))
	complete(cmd, "context", completeContexts)
	complete(cmd, "namespace", o.wanted(func(w broker.StoredWant) string { return w.Key.Namespace }))
}

// Cluster returns a reader of the cluster.
func (o *options) Cluster() *cluster.Client { return &cluster.Client{Options: o.Kube} }

// noArgs rejects arguments, and suggests similar commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // as in cobra
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return usagef("%s has no command %q, did you mean %s?", cmd.CommandPath(), args[0], strings.Join(similar, " or "))
	}
	return usagef("%s does not accept %q; see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
}

// takes rejects fewer and more arguments.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("wrong number of arguments for `%s`", cmd.UseLine())
		}
		return nil
	}
}

// ParseObject parses NAMESPACE/NAME, or NAME with --namespace.
func (o *options) ParseObject(arg string) (namespace, name string, err error) {
	namespace, name, found := strings.Cut(arg, "/")
	if !found {
		namespace, name = o.Namespace, arg
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usagef("%q is not of the form NAMESPACE/NAME", arg)
	}
	return namespace, name, nil
}
