package curlctl

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// defaultLimit is the number of listed failures without --limit.
const defaultLimit = 50

// failuresCommand returns the command failures with its subcommands.
func failuresCommand(o *options) *cobra.Command {
	selected := &keys.Selection{}
	limit, summary := defaultLimit, false
	cmd := &cobra.Command{
		Use: "failures", Short: "List failed fetches, newest first",
		Long: "Lists failed fetches, newest first. The column NOW shows the current state of the key,\n" +
			"unless --limit=0 is given.",
		Args: noArgs,
	}
	cmd.RunE = o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
		if summary {
			return summarizeFailures(ctx, s, selected.DeadLetterFilter)
		}
		return listFailures(ctx, s, selected.DeadLetterFilter, limit)
	})
	bindSelection(o, cmd, selected, func([]string) error { return notNegative("limit", limit) })
	cmd.Flags().IntVar(&limit, "limit", limit, "maximum number of failures (0: all)")
	cmd.Flags().BoolVar(&summary, "summary", false, "count failures by reason and host")
	cmd.AddCommand(showCommand(o), purgeCommand(o))
	return cmd
}

func listFailures(ctx context.Context, s *session, f broker.DeadLetterFilter, limit int) error {
	more := false
	rows := func(yield func(printer.Row, error) bool) {
		n := 0
		for d, err := range s.Client.DeadLetters(ctx, f) {
			if n++; err == nil && limit > 0 && n > limit {
				more = true
				return
			}
			row := keys.NewRecord(d)     //nolint:contextcheck // it only parses
			if err == nil && limit > 0 { // takes three requests per key
				var key *keys.Key
				key, err = s.Reader("").ReadOne(ctx, d.Key)
				row.Now = keys.CurrentState(row.Request, key)
			}
			if !yield(row.Row(s.Now()), err) || err != nil {
				return
			}
		}
	}
	err := s.List(rows, noFailures(f))
	if err == nil && more && !s.Out.ForPrograms() {
		s.Hint("These are the newest %d, --limit=0 lists all.", limit)
	}
	return err
}

// summarizeFailures counts failures by reason and host.
func summarizeFailures(ctx context.Context, s *session, f broker.DeadLetterFilter) error {
	counts, err := s.Client.CountDeadLetters(ctx, f)
	if err != nil {
		return err
	}
	groups := slices.SortedFunc(maps.Keys(counts), func(a, b broker.ReasonHost) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Host, b.Host))
	})
	type line struct {
		broker.ReasonHost
		Count uint64 `json:"count"`
	}
	return s.List(printer.Rows(groups, func(k broker.ReasonHost) printer.Row {
		return printer.Row{
			Name: k.Reason + "/" + k.Host, Object: line{k, counts[k]},
			Cells: printer.Cells("REASON", k.Reason, "HOST", k.Host, "FAILURES", counts[k]),
		}
	}), noFailures(f))
}

// bindSelection adds the flags that select failures. Before the command connects, it calls check and parses them.
func bindSelection(o *options, cmd *cobra.Command, s *keys.Selection, check func(args []string) error) {
	s.Each(func(flag, help string, value *string) {
		if value != &s.Namespace { // a flag of all commands
			cmd.Flags().StringVar(value, flag, "", help)
		}
	})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		s.Namespace = o.Namespace
		if err := check(args); err != nil {
			return err
		}
		if err := s.Parse(o.Now()); err != nil {
			return usagef("--%w", err)
		}
		return nil
	}
	o.completeFilters(cmd, keys.Reasons())
}

// noFailures returns the message for an empty list.
func noFailures(f broker.DeadLetterFilter) string {
	if f == (broker.DeadLetterFilter{}) {
		return "No failures found."
	}
	return "No failures match. `curlctl failures --summary` shows reasons and hosts."
}

func purgeCommand(o *options) *cobra.Command {
	selected := &keys.Selection{}
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove failures from the record, without effect on the keys",
		Args:  noArgs,
	}
	cmd.RunE = o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
		counts, err := s.Client.CountDeadLetters(ctx, selected.DeadLetterFilter)
		if err != nil {
			return err
		}
		n := broker.Total(counts)
		if n == 0 {
			s.Out.Linef("%s", noFailures(selected.DeadLetterFilter))
			return nil
		}
		if !yes {
			if err := s.Confirm("Remove %s from the record?", printer.Plural(n, "failure")); err != nil {
				return err
			}
		}
		removed, err := s.Client.PurgeDeadLetters(ctx, selected.DeadLetterFilter)
		if err == nil || removed > 0 {
			s.Out.Linef("Removed %s.", printer.Plural(removed, "failure"))
		}
		return err
	})
	bindSelection(o, cmd, selected, func([]string) error {
		if len(selected.Words()) == 0 && !all {
			return usagef("purge needs filters such as --host, or --all")
		}
		return nil
	})
	cmd.Flags().BoolVar(&all, "all", false, "remove all failures")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation prompt")
	return cmd
}

func showCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:               "show ID",
		Short:             "Show one failed fetch with the server's response, and the current state of its key",
		Args:              takes(1, 1),
		ValidArgsFunction: first(o.completeFailures),
		RunE: o.Run(withNATS, func(ctx context.Context, s *session, args []string) error {
			var selected keys.Selection
			if err := selected.SetIDs(args); err != nil {
				return usagef("%w", err)
			}
			f, err := keys.Failure(ctx, s.Client, selected.IDs[0])
			if err != nil {
				return err
			}
			key, err := s.Reader("").ReadOne(ctx, f.Key)
			if err != nil {
				return err
			}
			return showFailure(s, f, key) //nolint:contextcheck // it only parses
		}),
	}
}

func showFailure(s *session, f broker.DeadLetter, key *keys.Key) error {
	r := keys.NewRecord(f)
	r.Now, r.Snippet = keys.CurrentState(r.Request, key), keys.Snippet(f)
	if s.Out.ForPrograms() {
		return s.Out.Object(r.Row(s.Now()).Name, r)
	}
	if r.Now == keys.Recovered && !key.LastAttempt.IsZero() {
		r.Now += ", last fetched " + printer.Age(s.Now(), key.LastAttempt) + " ago"
	}
	s.Out.Fields(r.Fields(s.Now()))
	if r.Snippet != "" {
		s.Out.Linef("Response:")
		for line := range strings.SplitSeq(r.Snippet, "\n") {
			s.Out.Linef("  %s", line)
		}
	}
	return nil
}
