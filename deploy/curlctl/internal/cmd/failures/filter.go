// Package failures has the commands that list, show, purge and replay failures.
package failures

import (
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// filter holds the flags that select failures.
type filter struct {
	*cli.Options
	deadletter.Selection
	// parsed is valid from PreRunE on.
	parsed operate.DeadLetterFilter
}

// bindFlags adds the flags, which are parsed before the connection, after check.
func (f *filter) bindFlags(cmd *cobra.Command, check func(args []string) error) {
	fs := cmd.Flags()
	fs.StringVar(&f.Reason, "reason", "", "only failures with this reason, such as Timeout")
	f.BindHost(cmd, &f.Host)
	f.BindName(cmd, &f.Name)
	fs.StringVar(&f.Key, "key", "", "only failures of this key")
	fs.StringVar(&f.Since, "since", "", "only failures since a time (RFC 3339) or a duration ago, such as 2h")
	fs.StringVar(&f.Until, "until", "", "only failures before a time (RFC 3339) or a duration ago, such as 10m")
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if err := check(args); err != nil {
			return err
		}
		f.Selection.Namespace = f.Options.Namespace
		if f.parsed, err = f.Filter(f.Now()); err != nil {
			return cli.Usagef("--%w", err)
		}
		return nil
	}
	cli.Complete(cmd, "reason", cobra.FixedCompletions(deadletter.Reasons(), cli.Silently))
}

// any reports whether any flag is set.
func (f *filter) any() bool { return f.narrows() || f.Options.Namespace != "" }

// narrows reports whether any flag other than --namespace is set.
func (f *filter) narrows() bool { return f.Selection != deadletter.Selection{} }

// none says that there is no such failure.
func none(f operate.DeadLetterFilter) string {
	if f == (operate.DeadLetterFilter{}) {
		return "No failures found."
	}
	return "No failures match. `curlctl failures --summary` shows reasons and hosts."
}
