package curlctl

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// listed is a key in JSON output.
type listed struct {
	Namespace string `json:"namespace"`
	ConfigMap string `json:"configMap"`
	Key       string `json:"key,omitempty"`
	UID       string `json:"uid,omitempty"`
	keystate.Condition
	Host     string    `json:"host,omitempty"`
	URL      string    `json:"url,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Cause    string    `json:"cause,omitempty"`
	Sequence uint64    `json:"sequence,omitempty"`
	WantedAt time.Time `json:"wantedAt,omitzero"`
}

const noneFailing = "No keys are failing, refused, contested, stale or pending."

// failingCommand returns the command failing.
func failingCommand(o *options) *cobra.Command {
	var name, host, reason string
	summary, updates, limit := false, false, 0
	cmd := &cobra.Command{
		Use:   "failing",
		Short: "List the keys that are failing, refused, contested, stale or pending now (reads Kubernetes)",
		Long: "Lists keys whose last fetch failed, keys whose write the API server or another owner\n" +
			"prevents or keeps changing, keys without a good fetch for " + strconv.Itoa(condition.StaleIntervals) +
			" intervals, and keys that wait. It reads the streams\n" +
			"and the metadata of ConfigMaps; without NATS, only the latter. `curlctl failures` lists fetches\n" +
			"that failed for good, even if their keys have recovered.",
		Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if reason != "" && !slices.Contains(reasons(), reason) {
				return usagef("--reason: %q is not one of %s", reason, strings.Join(reasons(), ", "))
			}
			return notNegative("limit", limit)
		},
		RunE: o.RunAnyway(func(ctx context.Context, s *session, _ []string) error {
			all, err := s.Keys(ctx, name)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(k keys.Key) bool {
				wanted := !k.Condition.Good()
				if updates {
					wanted = k.Condition.State == keystate.HeldBack
				}
				return !wanted || host != "" && !k.HostIs(host) || reason != "" && k.Condition.Reason != reason
			})
			slices.SortFunc(all, func(a, b keys.Key) int {
				return cmp.Or(keystate.Compare(a.Condition, b.Condition), keys.Compare(a.Key, b.Key))
			})
			s.HintPaused(ctx)
			if summary {
				return summarizeKeys(s, keys.Groups(all), limit)
			}
			return listKeys(s, listing{all, limit, noneFailing}, printer.Table{
				Columns: "STATE|REASON|SINCE|NEXT TRY|HOST|NAMESPACE|CONFIGMAP|KEY", Wide: "CHECKED|WAITS FOR|ATTEMPTS|URL|MESSAGE",
			}, func(k listed) []string {
				return printer.Cells(k.State, keys.Reason(k.Reason, k.Status), printer.Age(s.Now(), k.Since), s.next(k.Condition),
					k.Host, k.Namespace, k.ConfigMap, k.Key, printer.Age(s.Now(), k.Checked), k.WaitsFor, k.Attempts, k.URL,
					k.Message)
			})
		}),
	}
	o.BindName(cmd, &name)
	o.BindHost(cmd, &host)
	cmd.Flags().StringVar(&reason, "reason", "", "only keys with this reason, such as Timeout")
	cmd.Flags().IntVar(&limit, "limit", 0, "maximum number of lines (0: all)")
	cmd.Flags().BoolVar(&updates, "updates", false, "list pinned keys that wait for the approval of other content instead")
	cmd.Flags().BoolVar(&summary, "summary", false, "count keys by state, reason and host, with the namespaces")
	complete(cmd, "reason", cobra.FixedCompletions(reasons(), silently))
	return cmd
}

// reasons returns the reasons of all states.
func reasons() []string { return append(keys.Reasons(), keystate.Reasons()...) }

// summarizeKeys prints at most limit groups of keys (0: all).
func summarizeKeys(s *session, groups []keys.Group, limit int) error {
	shown, more := first(groups, limit)
	table := printer.Table{Columns: "KEYS|STATE|REASON|HOST|FOR|SINCE|NAMESPACES"}
	err := s.List(table, printer.Rows(shown, func(g keys.Group) printer.Row {
		reason := keys.Reason(g.Reason, g.Status)
		return printer.Row{Name: reason + "/" + g.Host, Object: g, Cells: printer.Cells(
			g.Count, g.State, reason, g.Host, printer.Age(s.Now(), g.Since), printer.Clock(g.Since), g.Namespaces,
		)}
	}), noneFailing)
	if err == nil && more > 0 && !s.Out.ForPrograms() {
		s.Hint("%s more, `curlctl failing --summary` lists all.", printer.Plural(more, "group"))
	}
	return err
}

// first returns at most limit items (0: all), and the number of the others.
func first[T any](all []T, limit int) (shown []T, more int) {
	if limit > 0 && len(all) > limit {
		return all[:limit], len(all) - limit
	}
	return all, 0
}

// wantsCommand returns the command wants.
func wantsCommand(o *options) *cobra.Command {
	name, stale := "", false
	cmd := &cobra.Command{
		Use:   "wants",
		Short: "List all keys with URL, state and time of the last check (reads Kubernetes)",
		Args:  noArgs,
		RunE: o.RunAnyway(func(ctx context.Context, s *session, _ []string) error {
			all, err := s.Keys(ctx, name)
			if err != nil {
				return err
			}
			none := "No keys are wanted."
			if stale {
				none = "No keys are stale."
				all = slices.DeleteFunc(all, func(k keys.Key) bool { return !k.Condition.Stale })
			}
			return listKeys(s, listing{all, 0, none}, printer.Table{
				Columns: "NAMESPACE|CONFIGMAP|KEY|STATE|URL|REFRESH|CHECKED|WANTED", Wide: "CAUSE|SEQUENCE|UID",
			}, func(k listed) []string {
				return printer.Cells(k.Namespace, k.ConfigMap, k.Key, k.State, k.URL, k.Refresh, printer.Age(s.Now(), k.Checked),
					printer.Age(s.Now(), k.WantedAt), k.Cause, k.Sequence, k.UID)
			})
		}),
	}
	o.BindName(cmd, &name)
	cmd.Flags().BoolVar(&stale, "stale", false,
		"only keys without a good fetch for "+strconv.Itoa(condition.StaleIntervals)+" intervals")
	return cmd
}

// listing has the keys to print, their maximum number (0: all), and the message if there are none.
type listing struct {
	all   []keys.Key
	limit int
	none  string
}

// listKeys prints keys.
func listKeys(s *session, l listing, table printer.Table, cells func(listed) []string) error {
	shown, more := first(l.all, l.limit)
	err := s.List(table, printer.Rows(shown, func(k keys.Key) printer.Row {
		row := listed{
			Namespace: k.Namespace, ConfigMap: k.Name, Key: k.Key.Key, UID: k.UID, Condition: k.Condition, Host: k.Host,
			URL: keys.WithoutQuery(k.URL), Sequence: k.Sequence, WantedAt: k.At,
		}
		if k.Refresh > 0 {
			row.Refresh = duration.Format(k.Refresh)
		}
		if k.Sequence > 0 {
			row.Cause = pipeline.CauseName(k.Cause)
		}
		return printer.Row{Name: "key/" + strings.TrimSuffix(k.String(), "/"), Object: row, Cells: cells(row)}
	}), l.none)
	if err == nil && more > 0 && !s.Out.ForPrograms() {
		s.Hint("%s more, --limit=0 lists all.", printer.Plural(more, "key"))
	}
	return err
}

// next returns how long until the next attempt (empty: none is planned).
func (o *options) next(c keystate.Condition) string {
	if c.Next.IsZero() {
		return ""
	}
	return printer.Until(o.Now(), c.Next)
}

// scheduled is a timer in JSON output.
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

// timersCommand returns the command timers.
func timersCommand(o *options) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:   "timers",
		Short: "List scheduled refreshes, retries, rechecks and replays",
		Args:  noArgs,
		RunE: o.Run(func(ctx context.Context, s *session, _ []string) error {
			timers, err := s.Reader(name).Timers(ctx)
			if err != nil {
				return err
			}
			return s.List(printer.Table{
				Columns: "FIRES IN|CAUSE|NAMESPACE|CONFIGMAP|KEY|ATTEMPTS|WAITS FOR", Wide: "REASON|FIRES AT|REPLAY OF|URL",
			}, printer.Rows(timers.Sorted(), func(t operate.Timer) printer.Row {
				return timerRow(s, t)
			}), "Nothing is scheduled.")
		}),
	}
	o.BindName(cmd, &name)
	return cmd
}

func timerRow(s *session, t operate.Timer) printer.Row {
	row := scheduled{
		Namespace: t.Key.Namespace, ConfigMap: t.Key.Name, Key: t.Key.Key, Cause: pipeline.CauseName(t.Due.GetCause()),
		FiresAt: t.At, SetAt: t.SetAt, WaitsFor: condition.WaitsFor(t.Due.GetWaitsFor(), t.URL), Reason: t.Reason(),
		Status: t.Due.GetStatusCode(), Attempts: t.Due.GetAttempts(), ReplayOf: t.Due.GetReplayOf(),
		URL: keys.WithoutQuery(t.URL),
	}
	in, replayOf := printer.Until(s.Now(), t.At), ""
	if keystate.IsOverdue(s.Now(), t.At) {
		in = "overdue"
	}
	if row.ReplayOf > 0 {
		replayOf = "failure " + strconv.FormatUint(row.ReplayOf, 10)
	}
	return printer.Row{Name: "timer/" + t.Key.String(), Object: row, Cells: printer.Cells(
		in, row.Cause, row.Namespace, row.ConfigMap, row.Key, row.Attempts, row.WaitsFor,
		keys.Reason(row.Reason, row.Status), printer.Clock(row.FiresAt), replayOf, row.URL,
	)}
}
