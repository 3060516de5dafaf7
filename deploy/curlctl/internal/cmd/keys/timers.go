package keys

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// scheduled is a timer in JSON and YAML output.
type scheduled struct {
	Namespace string    `json:"namespace"`
	ConfigMap string    `json:"configMap"`
	Key       string    `json:"key"`
	Cause     string    `json:"cause"`
	FiresAt   time.Time `json:"firesAt"`
	SetAt     time.Time `json:"setAt"`
	WaitsFor  string    `json:"waitsFor,omitempty"`
	// Reason and Status describe the last attempt, if it failed.
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
			return s.List(printer.Table{
				Columns: "FIRES IN|CAUSE|NAMESPACE|CONFIGMAP|KEY|ATTEMPTS|WAITS FOR", Wide: "REASON|FIRES AT|REPLAY OF|URL",
				Drop: "ATTEMPTS|NAMESPACE|WAITS FOR",
			}, printer.Rows(timers.Sorted(), func(t operate.Timer) printer.Row {
				return timerRow(s, t)
			}), "Nothing is scheduled.")
		}),
	}
	o.BindName(cmd, &name)
	return cmd
}

func timerRow(s *cli.Session, t operate.Timer) printer.Row {
	row := scheduled{
		Namespace: t.Key.Namespace, ConfigMap: t.Key.Name, Key: t.Key.Key, Cause: pipeline.CauseName(t.Due.GetCause()),
		FiresAt: t.At, SetAt: t.SetAt, WaitsFor: condition.WaitsFor(t.Due.GetWaitsFor(), t.URL), Reason: t.Reason(),
		Status: t.Due.GetStatusCode(), Attempts: t.Due.GetAttempts(), ReplayOf: t.Due.GetReplayOf(),
		URL: deadletter.WithoutQuery(t.URL),
	}
	in, replayOf := printer.In(0, printer.Until(s.Now(), t.At)), ""
	if keystate.IsOverdue(s.Now(), t.At) {
		in = printer.In(printer.Red, "overdue")
	}
	if row.ReplayOf > 0 {
		replayOf = "failure " + strconv.FormatUint(row.ReplayOf, 10)
	}
	return printer.Row{Name: "timer/" + t.Key.String(), Object: row, Cells: printer.Cells(
		in, row.Cause, row.Namespace, row.ConfigMap, row.Key, row.Attempts, row.WaitsFor,
		deadletter.Reason(row.Reason, row.Status), printer.Clock(row.FiresAt), replayOf, row.URL,
	)}
}
