package failures

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

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
	removed := 0
	err = s.Audited(ctx, "purge", n, func(ctx context.Context) (_, _ int, err error) {
		removed, err = s.Client.PurgeDeadLetters(ctx, f)
		return removed, n - removed, err
	})
	if err == nil {
		s.Out.Linef("Removed %s.", printer.Plural(removed, "failure"))
	}
	return err
}
