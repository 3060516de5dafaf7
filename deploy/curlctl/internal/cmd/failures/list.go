package failures

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// defaultLimit is the number of listed failures without --limit.
const defaultLimit = 50

// Command returns the command failures with its subcommands.
func Command(o *cli.Options) *cobra.Command {
	selected := &filter{Options: o}
	limit, summary := defaultLimit, false
	cmd := &cobra.Command{
		Use: "failures", Aliases: []string{"failure"},
		Short: "List failed fetches, newest first",
		Long: "Lists failed fetches, newest first. The column NOW shows the current state of the key,\n" +
			"unless --limit=0 is given.",
		Args: cli.NoArgs,
	}
	cmd.RunE = o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		if summary {
			return summarize(ctx, s, selected.parsed)
		}
		return list(ctx, s, selected.parsed, limit)
	})
	selected.bindFlags(cmd, func([]string) error { return cli.NotNegative("limit", limit) })
	cmd.Flags().IntVar(&limit, "limit", limit, "maximum number of failures (0: all)")
	cmd.Flags().BoolVar(&summary, "summary", false, "count failures by reason and host")
	cmd.AddCommand(showCommand(o), purgeCommand(o))
	return cmd
}

func list(ctx context.Context, s *cli.Session, f operate.DeadLetterFilter, limit int) error {
	more := false
	reader := s.Reader("")
	handled, err := reader.Handled(ctx)
	if err != nil {
		return err
	}
	rows := func(yield func(printer.Row, error) bool) {
		n := 0
		for d, err := range s.Client.DeadLetters(ctx, f) {
			if n++; err == nil && limit > 0 && n > limit {
				more = true
				return
			}
			row := deadletter.NewRecord(d)
			if err == nil && limit > 0 { // takes three requests per key
				var key *keys.Key
				key, err = reader.One(ctx, d.Key, handled)
				row.Now = keys.Now(keys.RequestOf(d.Message.GetWant()), key)
			}
			if !yield(row.Row(s.Now()), err) || err != nil {
				return
			}
		}
	}
	err = s.List(deadletter.Table(), rows, none(f))
	if err == nil && more && !s.Out.ForPrograms() {
		s.Hint("These are the newest %d, --limit=0 lists all.", limit)
	}
	return err
}

// summarize counts failures by reason and host.
func summarize(ctx context.Context, s *cli.Session, f operate.DeadLetterFilter) error {
	counts, err := s.Client.CountDeadLetters(ctx, f)
	if err != nil {
		return err
	}
	groups := slices.SortedFunc(maps.Keys(counts), func(a, b operate.ReasonHost) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Host, b.Host))
	})
	type line struct {
		operate.ReasonHost
		Count uint64 `json:"count"`
	}
	return s.List(printer.Table{Columns: "REASON|HOST|FAILURES"}, printer.Rows(groups,
		func(k operate.ReasonHost) printer.Row {
			return printer.Row{
				Name: k.Reason + "/" + k.Host, Object: line{k, counts[k]},
				Cells: printer.Cells(printer.In(printer.Red, k.Reason), k.Host, counts[k]),
			}
		}), none(f))
}
