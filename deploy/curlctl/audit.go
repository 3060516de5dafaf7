package curlctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// audited is one record as programs read it.
type audited struct {
	Action   string `json:"action"`
	User     string `json:"user"`
	Filter   string `json:"filter,omitempty"`
	Selected uint64 `json:"selected"`
	Done     uint64 `json:"done"`
	Skipped  uint64 `json:"skipped"`
	// OnBehalfOf is the person for whom the console did it.
	OnBehalfOf string `json:"onBehalfOf,omitempty"`
	// Via is the program.
	Via string `json:"via,omitempty"`
	// BeganAt and EndedAt are written as RFC 3339 has them.
	BeganAt time.Time  `json:"beganAt"`
	EndedAt *time.Time `json:"endedAt,omitempty"`
}

func auditCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "audit",
		Short: "List who replayed, refetched, purged, paused and resumed, the newest first",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.list(printer.Dropping(printer.Columns("AGE", "ACTION", "USER", "SELECTED", "DONE", "SKIPPED", "FILTER", "", "BEGAN", "FOR", "VIA"), "SKIPPED", "SELECTED", "FILTER"),
				func(yield func(printer.Row, error) bool) {
					for a, err := range readable.Only(&s.unread, s.Client.Audits(ctx)) {
						if !yield(s.auditRow(a), err) {
							return
						}
					}
				}, "Nothing on record.")
		}),
	}
}

func (s *session) auditRow(a *v1.Audit) printer.Row {
	began := a.GetBeganAt().AsTime()
	r := audited{
		Action: a.GetAction(), User: a.GetUser(), Filter: a.GetFilter(),
		Selected: a.GetSelected(), Done: a.GetDone(), Skipped: a.GetSkipped(), BeganAt: began,
		OnBehalfOf: a.GetOnBehalfOf(), Via: a.GetVia(),
	}
	done := printer.Number(r.Done)
	if a.GetEndedAt() == nil {
		done = printer.In(printer.Yellow, "broken off")
	} else {
		ended := a.GetEndedAt().AsTime()
		r.EndedAt = &ended
	}
	return printer.Row{Name: "audit/" + r.Action, Object: r, Cells: []printer.Cell{
		printer.Text(printer.Age(s.now(), began)), printer.Text(r.Action), printer.Text(r.User), printer.Number(r.Selected), done,
		printer.Number(r.Skipped), printer.Text(r.Filter), printer.Text(printer.Clock(r.BeganAt)),
		printer.Text(r.OnBehalfOf), printer.Text(r.Via),
	}}
}
