package curlctl

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

func failuresPurgeCommand(o *options) *cobra.Command {
	selected := &deadLetterFilter{options: o}
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove failures from the record; what is wanted stays wanted",
		Args:  noArgs,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if !selected.any() && !all {
			return usagef("purge needs filters such as --host, or --all")
		}
		line := words(c.Flags(), nil)
		return o.run(func(ctx context.Context, s *session, _ []string) error {
			filter, err := selected.filter(s.now())
			if err != nil {
				return err
			}
			return s.purge(ctx, filter, line, yes)
		})(c, args)
	}
	selected.bindFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "remove all failures")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask back")
	return cmd
}

func (s *session) purge(ctx context.Context, filter operate.DeadLetterFilter, line string, yes bool) error {
	counts, err := operator.CountFailures(ctx, s.Client, filter, &s.unread)
	if err != nil {
		return err
	}
	n := 0
	for _, count := range counts {
		n += int(count)
	}
	if n == 0 {
		s.out.Linef("No failures found.")
		return nil
	}
	if !yes {
		if err := s.confirm("Remove %s from the record?", printer.Plural(n, "failure")); err != nil {
			return err
		}
	}
	end, err := s.audit(ctx, "purge", line, n)
	if err != nil {
		return err
	}
	removed, err := operator.PurgeFailures(ctx, s.Client, filter)
	if ended := end(ctx, removed, n-removed); err == nil {
		err = ended
	}
	if err == nil {
		s.out.Linef("Removed %s.", printer.Plural(removed, "failure"))
	}
	return err
}
