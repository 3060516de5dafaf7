package pipeline

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// audited is an action as programs read it.
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
				for a, err := range readable.Only(&s.Unread, s.Client.Audits(ctx)) {
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
