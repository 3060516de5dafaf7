// Package pipeline has the commands that act on the pipeline as a whole: watch, pause, resume,
// audit, setup and doctor.
package pipeline

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// PauseCommand returns the command pause.
func PauseCommand(o *cli.Options) *cobra.Command {
	limit := duration.Flag(0)
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause fetching without loss",
		Long: "Pauses the delivery of requests to all fetchers. Fetches in flight finish, new requests\n" +
			"and timers wait in the stream. `curlctl resume` ends the pause.",
		Args: cli.NoArgs,
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return cli.NotNegative("for", int(limit)) }
	cmd.RunE = o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		return pause(ctx, s, time.Duration(limit))
	})
	cmd.Flags().Var(&limit, "for", "resume after this time (0: never)")
	return cmd
}

func pause(ctx context.Context, s *cli.Session, limit time.Duration) error {
	until := "until `curlctl resume`"
	if limit > 0 {
		until = "for " + duration.Format(limit)
	} else {
		limit = operate.Forever
	}
	err := s.Audited(ctx, "pause", 0, audit.Once(func(ctx context.Context) error {
		return s.Client.PauseFetching(ctx, time.Now().Add(limit))
	}))
	if err == nil {
		s.Out.Linef("Fetching is %s %s.", printer.In(printer.Yellow, "paused"), until)
	}
	return err
}

// ResumeCommand returns the command resume.
func ResumeCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Resume fetching",
		Args:  cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			before, err := s.Client.Fetchers(ctx)
			if err != nil {
				return err
			}
			err = s.Audited(ctx, "resume", 0, audit.Once(s.Client.ResumeFetching))
			switch {
			case err != nil:
			case before.Paused:
				s.Out.Linef("Fetching %s, %s waiting.",
					printer.In(printer.Green, "resumed"), printer.Plural(int(before.NumPending), "request"))
			default:
				s.Out.Linef("Fetching was not paused.")
			}
			return err
		}),
	}
}

// audited is an action in JSON and YAML output.
type audited struct {
	Action     string    `json:"action"`
	User       string    `json:"user"`
	Filter     string    `json:"filter,omitempty"`
	Selected   uint64    `json:"selected"`
	Done       uint64    `json:"done"`
	Skipped    uint64    `json:"skipped"`
	OnBehalfOf string    `json:"onBehalfOf,omitempty"`
	Via        string    `json:"via,omitempty"`
	BeganAt    time.Time `json:"beganAt"`
	EndedAt    time.Time `json:"endedAt,omitzero"`
}

// AuditCommand returns the command audit.
func AuditCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "audit",
		Short: "List the actions of operators (replay, refetch, purge, pause, resume), newest first",
		Args:  cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			return s.List(printer.Table{
				Columns: "AGE|ACTION|USER|SELECTED|DONE|SKIPPED|FILTER", Wide: "BEGAN|FOR|VIA", Drop: "SKIPPED|SELECTED|FILTER",
			}, func(yield func(printer.Row, error) bool) {
				for a, err := range s.Client.Audits(ctx) {
					if !yield(auditRow(s, a), err) {
						return
					}
				}
			}, "The audit is empty.")
		}),
	}
}

func auditRow(s *cli.Session, a *v1.Audit) printer.Row {
	r := audited{
		Action: a.GetAction(), User: a.GetUser(), Filter: a.GetFilter(),
		Selected: a.GetSelected(), Done: a.GetDone(), Skipped: a.GetSkipped(), BeganAt: a.GetBeganAt().AsTime(),
		OnBehalfOf: a.GetOnBehalfOf(), Via: a.GetVia(),
	}
	var done any = r.Done
	if a.GetEndedAt() == nil {
		done = printer.In(printer.Yellow, "interrupted")
	} else {
		r.EndedAt = a.GetEndedAt().AsTime()
	}
	return printer.Row{Name: "audit/" + r.Action, Object: r, Cells: printer.Cells(
		printer.Age(s.Now(), r.BeganAt), r.Action, r.User, r.Selected, done, r.Skipped, r.Filter,
		printer.Clock(r.BeganAt), r.OnBehalfOf, r.Via,
	)}
}
