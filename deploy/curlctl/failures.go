package curlctl

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// firstPage is how many failures are listed without --limit.
const firstPage = 50

func failuresCommand(o *options) *cobra.Command {
	list := failuresListCommand(o)
	cmd := &cobra.Command{
		Use:     "failures",
		Aliases: []string{"failure"},
		Short:   "List failed fetches, the newest first",
		Long:    list.Long,
		Args:    noArgs,
		RunE:    list.RunE,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, failuresShowCommand(o), failuresPurgeCommand(o))
	return cmd
}

func failuresListCommand(o *options) *cobra.Command {
	selected := &deadLetterFilter{options: o}
	limit, summary := firstPage, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List failed fetches, the newest first",
		Long: "Lists what could not be fetched, the newest first. The server itself applies\n" +
			"--reason, --host, --namespace, --name and --key. The column NOW, which --limit=0\n" +
			"leaves out, is what has become of the key since.",
		Args: noArgs,
	}
	cmd.RunE = o.run(func(ctx context.Context, s *session, _ []string) error {
		filter, err := selected.filter(s.now())
		if err != nil {
			return err
		}
		if summary {
			return s.summarize(ctx, filter)
		}
		return s.listFailures(ctx, filter, limit)
	})
	selected.bindFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", limit, "how many to list; 0: all")
	cmd.Flags().BoolVar(&summary, "summary", false, "count failures by reason and host in place of listing them")
	return cmd
}

func (s *session) listFailures(ctx context.Context, filter operate.DeadLetterFilter, limit int) error {
	more := false
	handled := uint64(0)
	if limit > 0 {
		var err error
		if handled, err = s.handled(ctx); err != nil && !errors.Is(err, overview.ErrNoConsumer) {
			return err
		}
	}
	rows := func(yield func(printer.Row, error) bool) {
		n := 0
		for f, err := range readable.Only(&s.unread, s.Client.DeadLetters(ctx, filter)) {
			if err != nil {
				yield(printer.Row{}, err)
				return
			}
			if n++; limit > 0 && n > limit {
				more = true
				return
			}
			row := deadletter.NewRecord(f)
			if limit > 0 { // asked for by key, which is not for a whole history
				if row.Now, err = s.nowOf(ctx, f, handled); err != nil {
					yield(printer.Row{}, err)
					return
				}
			}
			if !yield(row.Row(s.now()), nil) {
				return
			}
		}
	}
	n, err := s.out.List(deadletter.Columns(), rows)
	switch {
	case err != nil:
		return err
	case n == 0 && !s.out.ForPrograms():
		s.hint("No failures found.")
	case more && !s.out.ForPrograms():
		s.hint("These are the newest %d; --limit=0 lists all.", limit)
	}
	return nil
}

// summarize counts failures by reason and host.
func (s *session) summarize(ctx context.Context, filter operate.DeadLetterFilter) error {
	counts, err := operator.CountFailures(ctx, s.Client, filter, &s.unread)
	if err != nil {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b operate.ReasonHost) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Reason+" "+a.Host, b.Reason+" "+b.Host))
	})
	type line struct {
		Reason string `json:"reason"`
		Host   string `json:"host"`
		Count  uint64 `json:"count"`
	}
	return s.list(printer.Columns("REASON", "HOST", "FAILURES"), printer.Rows(keys, func(k operate.ReasonHost) printer.Row {
		return printer.Row{
			Name: k.Reason + "/" + k.Host, Object: line{k.Reason, k.Host, counts[k]},
			Cells: []printer.Cell{printer.In(printer.Red, k.Reason), printer.Text(k.Host), printer.Number(counts[k])},
		}
	}), "No failures found.")
}

func failuresShowCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:               "show ID",
		Short:             "Show a failed fetch: what was asked for, what went wrong, whether it is still wanted",
		Args:              exactlyOne("the ID of a failure"),
		ValidArgsFunction: o.completeFailures,
		RunE: o.run(func(ctx context.Context, s *session, args []string) error {
			ids, err := failureIDs(args)
			if err != nil {
				return err
			}
			f, err := s.failure(ctx, ids[0])
			if err != nil {
				return err
			}
			verdict, err := replay.Check(ctx, s.Client, f)
			if err != nil {
				return err
			}
			return s.showFailure(f, verdict)
		}),
	}
}

// failure reads one failure; the error names what to do when there is none.
func (s *session) failure(ctx context.Context, id uint64) (operate.DeadLetter, error) {
	f, err := s.Client.DeadLetter(ctx, id)
	if errors.Is(err, pipeline.ErrNoMessage) || errors.Is(err, pipeline.ErrSubject) {
		return f, exitf(exitNotFound, "failure %d not found: it never was one, or has been removed; `curlctl failures` lists what is there", id)
	}
	return f, err
}

func (s *session) showFailure(f operate.DeadLetter, verdict replay.Verdict) error {
	r := deadletter.NewRecord(f)
	snippet := deadletter.Snippet(f.Message.GetSnippet())
	if s.out.ForPrograms() {
		return s.out.Object(deadletter.Name(r.ID), struct {
			deadletter.Record
			Snippet string `json:"snippet,omitempty"`
			Wanted  string `json:"wanted"`
		}{r, snippet, string(verdict)})
	}
	wanted := printer.In(printer.Green, "yes")
	if verdict != replay.Wanted {
		wanted = printer.In(printer.Yellow, "no: "+string(verdict))
	}
	reason := printer.In(printer.Red, r.Reason)
	if r.Status != 0 {
		reason.Text += " (status " + strconv.Itoa(int(r.Status)) + ")"
	}
	s.out.Fields([]printer.Field{
		{Name: "Failure", Value: printer.Number(r.ID)},
		{Name: "ConfigMap", Value: printer.Text(r.Namespace + "/" + r.ConfigMap)},
		{Name: "UID", Value: printer.Text(r.UID)},
		{Name: "Key", Value: printer.Text(r.Key)},
		{Name: "URL", Value: printer.Text(r.URL)},
		{Name: "Refresh", Value: printer.Text(r.Refresh)},
		{Name: "Reason", Value: reason},
		{Name: "Attempts", Value: printer.Number(r.Attempts)},
		{Name: "First failure", Value: printer.Text(clock(r.FirstFailedAt))},
		{Name: "Last failure", Value: printer.Text(clock(r.LastFailedAt))},
		{Name: "Kept", Value: printer.Text(printer.Clock(r.KeptAt) + ", " + printer.Age(s.now(), r.KeptAt) + " ago")},
		{Name: "Replay of", Value: failureLink(r.ReplayOf)},
		{Name: "Trace", Value: printer.Text(r.TraceID)},
		{Name: "Message", Value: printer.Text(r.Subject)},
		{Name: "Still wanted", Value: wanted},
	})
	if snippet != "" {
		s.out.Linef("Answer:")
		for line := range strings.SplitSeq(snippet, "\n") {
			s.out.Linef("  %s", line)
		}
	}
	return nil
}
