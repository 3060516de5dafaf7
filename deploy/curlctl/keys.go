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
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

// listing holds the flags of failing and wants.
type listing struct {
	keys.Filter

	summary bool
	// none is the message for an empty list.
	none string
}

// failingCommand returns the command failing.
func failingCommand(o *options) *cobra.Command {
	l := &listing{none: "No keys are failing, refused, contested, stale or pending."}
	cmd := l.command(o, "failing",
		"List the keys that are failing, refused, contested, stale or pending now (reads Kubernetes)")
	cmd.Long = "Lists keys whose last fetch failed, keys whose write the API server or another owner\n" +
		"prevents or keeps changing, keys without a good fetch for " + strconv.Itoa(failure.StaleIntervals) +
		" intervals, and keys that wait. It reads the streams\n" +
		"and the metadata of ConfigMaps; without NATS, only the latter. `curlctl failures` lists fetches\n" +
		"that failed for good, even if their keys have recovered."
	cmd.Flags().BoolVar(&l.HeldBack, "updates", false,
		"list pinned keys that wait for the approval of other content instead")
	return cmd
}

// wantsCommand returns the command wants.
func wantsCommand(o *options) *cobra.Command {
	l := &listing{none: "No keys are wanted."}
	cmd := l.command(o, "wants", "List all keys with state, next fetch, URL and last check (reads Kubernetes)")
	cmd.Flags().BoolVar(&l.Stale, "stale", false,
		"only keys without a good fetch for "+strconv.Itoa(failure.StaleIntervals)+" intervals")
	return cmd
}

func (l *listing) command(o *options, use, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if l.Reason != "" && !slices.Contains(reasons(), l.Reason) {
				return usagef("--reason: %q is not one of %s", l.Reason, strings.Join(reasons(), ", "))
			}
			return nil
		},
		RunE: o.Run(ifNATS, func(ctx context.Context, s *session, _ []string) error {
			l.Namespace, l.NotGood = s.Namespace, use == "failing" && !l.HeldBack
			return l.run(ctx, s)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&l.Name, "name", "", "only ConfigMaps with this name")
	fs.StringVar(&l.Host, "host", "", "only this host")
	fs.StringVar(&l.Reason, "reason", "", "only keys with this reason, such as Timeout")
	fs.BoolVar(&l.summary, "summary", false, "count failing keys by state, reason and host, with the namespaces")
	o.completeFilters(cmd, reasons())
	return cmd
}

func (l *listing) run(ctx context.Context, s *session) error {
	all, err := s.Keys(ctx, l.Name)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(k keys.Key) bool { return !l.Selects(&k) })
	slices.SortFunc(all, func(a, b keys.Key) int {
		return cmp.Or(keystate.Compare(a.Condition, b.Condition), keys.Compare(a.ConfigMapKey, b.ConfigMapKey))
	})
	s.HintPaused(ctx)
	if l.summary {
		return list(s, keys.Groups(all), l.none)
	}
	return list(s, all, l.none)
}

// reasons returns the reasons of all states.
func reasons() []string { return append(keys.Reasons(), keystate.Reasons()...) }

// list prints a row of each item. If there are none, it prints the message none for people.
func list[T interface {
	Row(now time.Time) printer.Row
}](s *session, items []T, none string) error {
	now := s.Now()
	return s.List(printer.Rows(items, func(item T) printer.Row { return item.Row(now) }), none)
}

// statusCommand returns the command status.
func statusCommand(o *options) *cobra.Command {
	namespace, name := "", ""
	return &cobra.Command{
		Use:   "status [NAMESPACE/NAME]",
		Short: "Show the pipeline at a glance, or the history of one ConfigMap or Watcher (reads Kubernetes)",
		Long: "Without an argument it shows how many keys are failing now and why, the backlog, timers,\n" +
			"hosts that asked for a pause, and consumers. With the name of a ConfigMap or Watcher it\n" +
			"shows its conditions, keys, URLs and history. It reads the metadata of ConfigMaps.",
		Args:              takes(0, 1),
		ValidArgsFunction: o.completeObjects,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				namespace, name, err = o.ParseObject(args[0])
			}
			return err
		},
		RunE: o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
			if name == "" {
				return pipelineStatus(ctx, s)
			}
			return objectStatus(ctx, s, namespace, name)
		}),
	}
}

// maxGroups is the maximum number of listed reasons and hosts.
const maxGroups = 5

func pipelineStatus(ctx context.Context, s *session) error {
	view, err := keys.ReadOverview(ctx, s.Where, s.Client, s.Objects(ctx, ""), s.Now())
	if err != nil {
		return err
	}
	if s.Out.ForPrograms() {
		return s.Out.Object("pipeline", view)
	}
	failures := printer.Grouped(view.LastHour) + " in the last hour, " + printer.Grouped(view.Failures) + " kept"
	overdue := ""
	if view.Timers.Overdue > 0 {
		overdue = printer.Plural(view.Timers.Overdue, "timer") + ", see `curlctl doctor`"
	}
	s.Out.Fields([]printer.Field{
		{Name: "NATS", Value: view.Server},
		{Name: "Fetching", Value: view.Headline(s.Now())},
		{Name: "Scheduled", Value: scheduledTimers(s, view.Timers)},
		{Name: "Failures", Value: failures},
		{Name: "Overdue", Value: overdue},
	})
	s.Out.Linef("")
	if len(view.Groups) > 0 {
		shown := view.Groups[:min(len(view.Groups), maxGroups)]
		if err := list(s, shown, ""); err != nil {
			return err
		}
		if more := len(view.Groups) - len(shown); more > 0 {
			s.Out.Linef("%s more, `curlctl failing --summary` lists all", printer.Grouped(more))
		}
		s.Out.Linef("")
	}
	return list(s, view.Consumers, "")
}

func scheduledTimers(s *session, t keys.TimerCounts) string {
	text := printer.Plural(t.Pending, "timer")
	if t.Next == nil {
		return text
	}
	next := "the next is due now"
	if t.Next.After(s.Now()) {
		next = "the next in " + printer.Until(s.Now(), *t.Next)
	}
	return text + ", " + next + ", " + printer.Grouped(t.Minute) + " within a minute"
}

// objectStatus prints the history of one ConfigMap, and the conditions of its Watcher.
func objectStatus(ctx context.Context, s *session, namespace, name string) error {
	view := keys.ObjectStatus{Namespace: namespace, ConfigMap: name, Timeline: []keys.TimelineEntry{}}
	if err := view.ReadCluster(ctx, s.Cluster()); err != nil {
		return err
	}
	if err := view.ReadStreams(ctx, s.Client, s.Now()); err != nil {
		return err
	}
	if !view.Known() {
		return notFound(namespace, name)
	}
	if s.Out.ForPrograms() {
		return s.Out.Object("configmap/"+view.ConfigMap, view)
	}
	s.Out.Fields(view.Fields(s.Now()))
	s.Out.Linef("")
	return list(s, view.Timeline, "")
}
