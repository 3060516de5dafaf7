// Package keys has the commands that list wanted keys and their timers, and refetch them.
package keys

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/condition"
)

// failingKey is a key as programs read it.
type failingKey struct {
	Namespace string     `json:"namespace"`
	ConfigMap string     `json:"configMap"`
	Key       string     `json:"key"`
	State     string     `json:"state"`
	Reason    string     `json:"reason"`
	Status    int32      `json:"status,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	NextTry   *time.Time `json:"nextTry,omitempty"`
	Checked   *time.Time `json:"lastChecked,omitempty"`
	WaitsFor  string     `json:"waitsFor,omitempty"`
	Attempts  uint32     `json:"attempts,omitempty"`
	Host      string     `json:"host,omitempty"`
	URL       string     `json:"url"`
}

// FailingCommand returns the command failing.
func FailingCommand(o *cli.Options) *cobra.Command {
	var name, host string
	summary := false
	cmd := &cobra.Command{
		Use:   "failing",
		Short: "List the keys that are failing, waiting or stale now, with reason and next try",
		Long: "Lists keys whose last attempt failed, keys that wait for a fetcher or for their host, and\n" +
			"keys without a good fetch for " + strconv.Itoa(condition.StaleIntervals) +
			" intervals. `curlctl failures` lists fetches that failed\n" +
			"for good, including those that have recovered.",
		Args: cli.NoArgs,
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			all, err := reader(s, name).Read(ctx)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(k keys.Key) bool {
				return k.Condition.State == keys.Well || host != "" && !k.HostIs(host)
			})
			slices.SortFunc(all, func(a, b keys.Key) int {
				return cmp.Or(keys.CompareConditions(a.Condition, b.Condition), keys.Compare(a.Key, b.Key))
			})
			s.HintPaused(ctx)
			if summary {
				return summarize(s, all)
			}
			return s.List(printer.Table{
				Columns: "STATE|REASON|SINCE|NEXT TRY|HOST|NAMESPACE|CONFIGMAP|KEY", Wide: "CHECKED|WAITS FOR|ATTEMPTS|URL",
				Drop: "HOST|STATE|SINCE",
			}, printer.Rows(all, func(k keys.Key) printer.Row { return failingRow(s, k) }),
				none)
		}),
	}
	o.BindName(cmd, &name)
	o.BindHost(cmd, &host)
	cmd.Flags().BoolVar(&summary, "summary", false, "count keys by state, reason and host")
	return cmd
}

const none = "No keys are failing, waiting or stale."

// group of keys in a summary.
type group struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
	Host   string `json:"host"`
}

// summarize counts keys by state, reason and host.
func summarize(s *cli.Session, all []keys.Key) error {
	counts := map[group]int{}
	for _, k := range all {
		counts[group{string(k.Condition.State), deadletter.Reason(k.Condition.Reason, k.Condition.Status), k.Host}]++
	}
	groups := slices.SortedFunc(maps.Keys(counts), func(a, b group) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Host, b.Host))
	})
	return s.List(printer.Table{Columns: "STATE|REASON|HOST|KEYS"}, printer.Rows(groups, func(g group) printer.Row {
		return printer.Row{
			Name: g.Reason + "/" + g.Host, Cells: printer.Cells(g.State, g.Reason, g.Host, counts[g]),
			Object: struct {
				group

				Count int `json:"count"`
			}{g, counts[g]},
		}
	}), none)
}

func reader(s *cli.Session, name string) keys.Reader {
	return keys.Reader{Client: s.Client, Namespace: s.Namespace, Name: name, Unread: &s.Unread, Now: s.Now()}
}

func failingRow(s *cli.Session, k keys.Key) printer.Row {
	c := k.Condition
	f := failingKey{
		Namespace: k.Namespace, ConfigMap: k.Name, Key: k.Key.Key, State: string(c.State), Reason: c.Reason, Status: c.Status,
		Since: optional(c.Since), NextTry: optional(c.Next), Checked: optional(c.Checked), WaitsFor: c.WaitsFor,
		Attempts: c.Attempts, Host: k.Host, URL: deadletter.WithoutQuery(k.URL),
	}
	colour := printer.Yellow
	if c.State == keys.Failing {
		colour = printer.Red
	}
	next := ""
	if !c.Next.IsZero() {
		next = printer.Until(s.Now(), c.Next)
	}
	return printer.Row{Name: "key/" + k.String(), Object: f, Cells: printer.Cells(
		printer.In(colour, f.State), printer.In(colour, deadletter.Reason(f.Reason, f.Status)), printer.Age(s.Now(), c.Since),
		next, f.Host, f.Namespace, f.ConfigMap, f.Key, printer.Age(s.Now(), c.Checked), f.WaitsFor, f.Attempts, f.URL,
	)}
}

func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
