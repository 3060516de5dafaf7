package keys

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// wanted is a wanted key as programs read it.
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
	// LastChecked is the time of the last attempt, if the timer shows it.
	LastChecked *time.Time `json:"lastChecked,omitempty"`
	State       string     `json:"state"`
	Reason      string     `json:"reason,omitempty"`
}

// WantsCommand returns the command wants.
func WantsCommand(o *cli.Options) *cobra.Command {
	name, stale := "", false
	cmd := &cobra.Command{
		Use:   "wants",
		Short: "List all wanted keys with URL and time of the last check",
		Args:  cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			all, err := reader(s, name).Read(ctx)
			if err != nil {
				return err
			}
			none := "No keys are wanted."
			if stale {
				none = "No keys are stale."
				all = slices.DeleteFunc(all, func(k keys.Key) bool { return !k.Condition.Stale })
			}
			return s.List(printer.Table{
				Columns: "NAMESPACE|CONFIGMAP|KEY|URL|REFRESH|CHECKED|SINCE", Wide: "CAUSE|SEQUENCE|UID", Drop: "SINCE|REFRESH|URL",
			}, printer.Rows(all, func(k keys.Key) printer.Row { return wantRow(s, k) }), none)
		}),
	}
	o.BindName(cmd, &name)
	cmd.Flags().BoolVar(&stale, "stale", false,
		"only keys without a good fetch for "+strconv.Itoa(condition.StaleIntervals)+" intervals")
	return cmd
}

func wantRow(s *cli.Session, k keys.Key) printer.Row {
	w := wanted{
		Namespace: k.Namespace, ConfigMap: k.Name, Key: k.Key.Key, UID: k.UID, URL: deadletter.WithoutQuery(k.URL),
		Cause: pipeline.CauseName(k.Cause), Sequence: k.Sequence, Since: k.At, LastChecked: optional(k.Condition.Checked),
		State: string(k.Condition.State), Reason: k.Condition.Reason,
	}
	if k.Refresh > 0 {
		w.Refresh = duration.Format(k.Refresh)
	}
	return printer.Row{Name: "want/" + k.String(), Object: w, Cells: printer.Cells(
		w.Namespace, w.ConfigMap, w.Key, w.URL, w.Refresh, printer.Age(s.Now(), k.Condition.Checked),
		printer.Age(s.Now(), k.At), w.Cause, w.Sequence, w.UID,
	)}
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
	// Reason and Status are of the last attempt, if that failed.
	Reason   string `json:"reason,omitempty"`
	Status   int32  `json:"status,omitempty"`
	Attempts uint32 `json:"attempts,omitempty"`
	ReplayOf uint64 `json:"replayOf,omitempty"`
	URL      string `json:"url"`
}

// TimersCommand returns the command timers.
func TimersCommand(o *cli.Options) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:   "timers",
		Short: "List scheduled refreshes, retries, rechecks and replays",
		Args:  cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			timers, err := reader(s, name).Timers(ctx)
			if err != nil {
				return err
			}
			slices.SortFunc(timers.All, func(a, b keys.Timer) int {
				return cmp.Or(a.At.Compare(b.At), keys.Compare(a.Key,
					b.Key))
			})
			return s.List(printer.Table{
				Columns: "FIRES IN|CAUSE|NAMESPACE|CONFIGMAP|KEY|ATTEMPTS|WAITS FOR", Wide: "REASON|FIRES AT|REPLAY OF|URL",
				Drop: "ATTEMPTS|NAMESPACE|WAITS FOR",
			}, printer.Rows(timers.All, func(t keys.Timer) printer.Row { return timerRow(s, t) }), "Nothing is scheduled.")
		}),
	}
	o.BindName(cmd, &name)
	return cmd
}

func timerRow(s *cli.Session, t keys.Timer) printer.Row {
	row := scheduled{
		Namespace: t.Namespace, ConfigMap: t.Name, Key: t.Key.Key, Cause: pipeline.CauseName(t.Cause), FiresAt: t.At,
		SetAt:    t.SetAt,
		WaitsFor: condition.WaitsFor(t.WaitsFor, t.URL), Reason: t.Reason(), Status: t.Status, Attempts: t.Attempts,
		ReplayOf: t.ReplayOf, URL: deadletter.WithoutQuery(t.URL),
	}
	in, replayOf := printer.In(0, printer.Until(s.Now(), t.At)), ""
	if keys.IsOverdue(s.Now(), t.At) {
		in = printer.In(printer.Red, "overdue")
	}
	if t.ReplayOf > 0 {
		replayOf = "failure " + strconv.FormatUint(t.ReplayOf, 10)
	}
	return printer.Row{Name: "timer/" + t.String(), Object: row, Cells: printer.Cells(
		in, row.Cause, row.Namespace, row.ConfigMap, row.Key, row.Attempts, row.WaitsFor,
		deadletter.Reason(row.Reason, row.Status), printer.Clock(row.FiresAt), replayOf, row.URL,
	)}
}
