package curlctl

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

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
