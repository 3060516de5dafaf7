package curlctl

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/show"
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
	BeganAt  string `json:"beganAt"`
	EndedAt  string `json:"endedAt,omitempty"`
}

func auditCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "audit",
		Short: "List who replayed, refetched, purged, paused and resumed, the newest first",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			n, err := s.out.List(show.Columns("AGE", "ACTION", "USER", "SELECTED", "DONE", "SKIPPED", "FILTER", "", "BEGAN"),
				func(yield func(show.Row, error) bool) {
					for a, err := range s.Client.Audits(ctx) {
						if !yield(s.auditRow(a), err) {
							return
						}
					}
				})
			if err == nil && n == 0 && !s.out.ForPrograms() {
				s.hint("Nothing on record.")
			}
			return err
		}),
	}
}

func (s *session) auditRow(a *v1.Audit) show.Row {
	began := a.GetBeganAt().AsTime()
	r := audited{
		Action: a.GetAction(), User: a.GetUser(), Filter: a.GetFilter(),
		Selected: a.GetSelected(), Done: a.GetDone(), Skipped: a.GetSkipped(), BeganAt: show.Clock(began),
	}
	done := show.Number(r.Done)
	if a.GetEndedAt() == nil {
		done = show.In(show.Yellow, "broken off")
	} else {
		r.EndedAt = show.Clock(a.GetEndedAt().AsTime())
	}
	return show.Row{Name: "audit/" + r.Action, Object: r, Cells: []show.Cell{
		show.Text(show.Age(s.now(), began)), show.Text(r.Action), show.Text(r.User), show.Number(r.Selected), done,
		show.Number(r.Skipped), show.Text(r.Filter), show.Text(r.BeganAt),
	}}
}
