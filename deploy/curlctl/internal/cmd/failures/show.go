package failures

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func showCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use:               "show ID",
		Short:             "Show one failed fetch with the server's response, and the current state of its key",
		Args:              cli.ExactlyOne("the ID of a failure"),
		ValidArgsFunction: o.CompleteFailures,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, args []string) error {
			ids, err := cli.FailureIDs(args)
			if err != nil {
				return err
			}
			f, err := read(ctx, s, ids[0])
			if err != nil {
				return err
			}
			reader := s.Reader("")
			handled, err := reader.Handled(ctx)
			if err != nil {
				return err
			}
			key, err := reader.One(ctx, f.Key, handled)
			if err != nil {
				return err
			}
			return show(s, f, key)
		}),
	}
}

// read reads one failure.
func read(ctx context.Context, s *cli.Session, id uint64) (operate.DeadLetter, error) {
	f, err := s.Client.DeadLetter(ctx, id)
	if errors.Is(err, pipeline.ErrNoMessage) || errors.Is(err, pipeline.ErrSubject) {
		return f, cli.Errorf(cli.NotFound,
			"failure %d not found, it may have been removed (`curlctl failures` lists all)", id)
	}
	return f, err
}

func show(s *cli.Session, f operate.DeadLetter, key *keys.Key) error {
	r, snippet := deadletter.NewRecord(f), deadletter.Snippet(f.Message.GetSnippet())
	r.Now = keys.Now(keys.RequestOf(f.Message.GetWant()), key)
	if s.Out.ForPrograms() {
		return s.Out.Object(deadletter.Name(r.ID), struct {
			deadletter.Record
			Snippet string `json:"snippet,omitempty"`
		}{r, strings.Join(snippet, "\n")})
	}
	now := r.Now
	if now == keys.Recovered && !key.Condition.Checked.IsZero() {
		now += ", last fetched " + printer.Age(s.Now(), key.Condition.Checked) + " ago"
	}
	replayOf := ""
	if r.ReplayOf > 0 {
		replayOf = "failure " + strconv.FormatUint(r.ReplayOf, 10)
	}
	s.Out.Fields([]printer.Field{
		{Name: "Failure", Value: r.ID},
		{Name: "ConfigMap", Value: r.Namespace + "/" + r.ConfigMap},
		{Name: "UID", Value: r.UID},
		{Name: "Key", Value: r.Key},
		{Name: "URL", Value: r.URL},
		{Name: "Refresh", Value: r.Refresh},
		{Name: "Reason", Value: printer.In(printer.Red, strings.TrimSuffix(r.Reason+": "+r.Sentence, ": "))},
		{Name: "Attempts", Value: r.Attempts},
		{Name: "First failure", Value: printer.Clock(r.FirstFailedAt)},
		{Name: "Last failure", Value: printer.Clock(r.LastFailedAt)},
		{Name: "Kept", Value: printer.Clock(r.KeptAt) + ", " + printer.Age(s.Now(), r.KeptAt) + " ago"},
		{Name: "Replay of", Value: replayOf},
		{Name: "Trace", Value: r.TraceID},
		{Name: "Message", Value: r.Subject},
		{Name: "Now", Value: now},
	})
	if len(snippet) > 0 {
		s.Out.Linef("Response:")
	}
	for _, line := range snippet {
		s.Out.Linef("  %s", line)
	}
	return nil
}
