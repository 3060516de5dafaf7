// Package failures has the commands that list, show, purge and replay failures.
package failures

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// filter holds the flags that select failures.
type filter struct {
	*cli.Options
	deadletter.Selection
	// parsed is valid from PreRunE on.
	parsed operate.DeadLetterFilter
}

// bindFlags adds the flags. Before the command connects, it calls check and parses the filter.
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

// none returns the message for an empty list.
func none(f operate.DeadLetterFilter) string {
	if f == (operate.DeadLetterFilter{}) {
		return "No failures found."
	}
	return "No failures match. `curlctl failures --summary` shows reasons and hosts."
}

func purgeCommand(o *cli.Options) *cobra.Command {
	selected := &filter{Options: o}
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove failures from the record, without effect on the keys",
		Args:  cli.NoArgs,
	}
	cmd.RunE = o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		return purge(ctx, s, selected.parsed, yes)
	})
	selected.bindFlags(cmd, func([]string) error {
		if !selected.any() && !all {
			return cli.Usagef("purge needs filters such as --host, or --all")
		}
		return nil
	})
	cmd.Flags().BoolVar(&all, "all", false, "remove all failures")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation prompt")
	return cmd
}

func purge(ctx context.Context, s *cli.Session, f operate.DeadLetterFilter, yes bool) error {
	counts, err := s.Client.CountDeadLetters(ctx, f)
	if err != nil {
		return err
	}
	n := operate.Total(counts)
	if n == 0 {
		s.Out.Linef("%s", none(f))
		return nil
	}
	if !yes {
		if err := s.Confirm("Remove %s from the record?", printer.Plural(n, "failure")); err != nil {
			return err
		}
	}
	removed, err := s.Client.PurgeDeadLetters(ctx, f)
	if err == nil {
		s.Out.Linef("Removed %s.", printer.Plural(removed, "failure"))
	}
	return err
}
