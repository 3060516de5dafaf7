package curlctl

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// wanted is a want as programs read it.
type wanted struct {
	Namespace string    `json:"namespace"`
	ConfigMap string    `json:"configMap"`
	Key       string    `json:"key"`
	UID       string    `json:"uid"`
	URL       string    `json:"url"`
	Refresh   string    `json:"refresh,omitempty"`
	Cause     string    `json:"cause"`
	Sequence  uint64    `json:"sequence"`
	Since     time.Time `json:"since"`
	// LastChecked is when the key was last looked at, if its timer shows it.
	LastChecked *time.Time `json:"lastChecked,omitempty"`
	State       string     `json:"state"`
	Reason      string     `json:"reason,omitempty"`
}

func wantsCommand(o *options) *cobra.Command {
	name, stale := "", false
	cmd := &cobra.Command{
		Use:   "wants",
		Short: "List what is wanted: each key of each ConfigMap with its URL, and when it was last checked",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.printWants(ctx, name, stale)
		}),
	}
	o.bindName(cmd, &name)
	cmd.Flags().BoolVar(&stale, "stale", false, "only keys without a good check for "+strconv.Itoa(condition.StaleIntervals)+" intervals")
	return cmd
}

func (s *session) printWants(ctx context.Context, name string, stale bool) error {
	timers, handled, err := s.timers(ctx, name)
	if err != nil {
		return err
	}
	columns := printer.Dropping(printer.Columns("NAMESPACE", "CONFIGMAP", "KEY", "URL", "REFRESH", "CHECKED", "SINCE", "", "CAUSE", "SEQUENCE", "UID"), "SINCE", "REFRESH", "URL")
	none := "Nothing is wanted."
	if stale {
		none = "Nothing is stale."
	}
	return s.list(columns, func(yield func(printer.Row, error) bool) {
		for w, err := range readable.Only(&s.unread, s.Client.Wants(ctx, s.namespace, name)) {
			if err != nil {
				yield(printer.Row{}, err)
				return
			}
			c := condition.Of(w, timers[w.Key], handled, s.now())
			if stale && !c.Stale {
				continue
			}
			if !yield(s.wantRow(w, c), nil) {
				return
			}
		}
	}, none)
}

func (s *session) wantRow(w operate.Want, c condition.Condition) printer.Row {
	r := wanted{
		Namespace: w.Key.Namespace, ConfigMap: w.Key.Name, Key: w.Key.Key, UID: w.Want.GetUid(),
		URL: deadletter.WithoutQuery(w.Want.GetUrl()), Refresh: interval(w.Want), Cause: pipeline.CauseName(w.Want.GetCause()),
		Sequence: w.Sequence, Since: w.At, State: string(c.State), Reason: c.Reason,
	}
	if !c.Checked.IsZero() {
		r.LastChecked = &c.Checked
	}
	return printer.Row{Name: "want/" + w.Key.String(), Object: r, Cells: []printer.Cell{
		printer.Text(r.Namespace), printer.Text(r.ConfigMap), printer.Text(r.Key), printer.Text(r.URL), printer.Text(r.Refresh),
		printer.Text(printer.Age(s.now(), c.Checked)), printer.Text(printer.Age(s.now(), w.At)), printer.Text(r.Cause), printer.Number(r.Sequence), printer.Text(r.UID),
	}}
}

func interval(w *v1.Want) string {
	if d := w.GetRefresh().AsDuration(); d > 0 {
		return duration.Format(d)
	}
	return ""
}

// scheduled is a timer as programs read it.
type scheduled struct {
	Namespace string    `json:"namespace"`
	ConfigMap string    `json:"configMap"`
	Key       string    `json:"key"`
	Cause     string    `json:"cause"`
	FiresAt   time.Time `json:"firesAt"`
	SetAt     time.Time `json:"setAt"`
	WaitsFor  string    `json:"waitsFor,omitempty"`
	// Reason and HTTP status of the last attempt, if that failed.
	Reason   string `json:"reason,omitempty"`
	Status   int32  `json:"status,omitempty"`
	Attempts uint32 `json:"attempts,omitempty"`
	ReplayOf uint64 `json:"replayOf,omitempty"`
	URL      string `json:"url"`
}

func timersCommand(o *options) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:   "timers",
		Short: "List what is scheduled and when: refreshes, retries, rechecks and replays",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			timers, err := s.scheduled(ctx, name)
			if err != nil {
				return err
			}
			columns := printer.Dropping(printer.Columns("FIRES IN", "CAUSE", "NAMESPACE", "CONFIGMAP", "KEY", "ATTEMPTS", "WAITS FOR", "", "REASON", "FIRES AT", "REPLAY OF", "URL"), "ATTEMPTS", "NAMESPACE", "WAITS FOR")
			return s.list(columns, printer.Rows(timers, s.timerRow), "Nothing is scheduled.")
		}),
	}
	o.bindName(cmd, &name)
	return cmd
}

// scheduled reads timers, the next to fire first.
func (s *session) scheduled(ctx context.Context, name string) ([]scheduled, error) {
	var all []scheduled
	for t, err := range readable.Only(&s.unread, s.Client.Timers(ctx, s.namespace, name)) {
		if err != nil {
			return nil, err
		}
		next := scheduled{
			Namespace: t.Key.Namespace, ConfigMap: t.Key.Name, Key: t.Key.Key, Cause: pipeline.CauseName(t.Due.GetCause()),
			FiresAt: t.At, SetAt: t.SetAt, Attempts: t.Due.GetAttempts(), ReplayOf: t.Due.GetReplayOf(),
			WaitsFor: condition.WaitsFor(t.Due.GetWaitsFor(), t.Due.GetWant().GetUrl()), URL: deadletter.WithoutQuery(t.Due.GetWant().GetUrl()),
		}
		if class := t.Due.GetReported(); class != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
			next.Reason, next.Status = pipeline.Reason(class), t.Due.GetStatusCode()
		}
		all = append(all, next)
	}
	slices.SortFunc(all, func(a, b scheduled) int {
		return cmp.Or(a.FiresAt.Compare(b.FiresAt), cmp.Compare(a.Namespace+"/"+a.ConfigMap+"/"+a.Key, b.Namespace+"/"+b.ConfigMap+"/"+b.Key))
	})
	return all, nil
}

func (s *session) timerRow(t scheduled) printer.Row {
	in := printer.Text(printer.Until(s.now(), t.FiresAt))
	if overview.Overdue(s.now(), t.FiresAt) {
		in = printer.In(printer.Red, "overdue")
	}
	return printer.Row{Name: "timer/" + t.Namespace + "/" + t.ConfigMap + "/" + t.Key, Object: t, Cells: []printer.Cell{
		in, printer.Text(t.Cause), printer.Text(t.Namespace), printer.Text(t.ConfigMap), printer.Text(t.Key), printer.Number(t.Attempts),
		printer.Text(t.WaitsFor), printer.Text(deadletter.Reason(t.Reason, t.Status)), printer.Text(printer.Clock(t.FiresAt)), failureLink(t.ReplayOf), printer.Text(t.URL),
	}}
}
