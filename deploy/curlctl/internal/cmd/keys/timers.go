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
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

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
			timers, err := s.Reader(name).Timers(ctx)
			if err != nil {
				return err
			}
			slices.SortFunc(timers.All, func(a, b keys.Timer) int {
				return cmp.Or(a.At.Compare(b.At), keys.Compare(a.Key, b.Key))
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
	if keystate.IsOverdue(s.Now(), t.At) {
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
