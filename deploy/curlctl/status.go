package curlctl

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/keystate"
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
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.CompleteObjects,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				namespace, name, err = o.Object(args[0])
			}
			return err
		},
		RunE: o.Run(func(ctx context.Context, s *session, _ []string) error {
			if name == "" {
				return pipelineStatus(ctx, s)
			}
			return objectStatus(ctx, s, namespace, name)
		}),
	}
}

func pipelineStatus(ctx context.Context, s *session) error {
	view, err := keys.ReadOverview(ctx, s.Connection, s.Objects(ctx, ""), s.Now)
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
	if len(view.Groups) > 0 {
		s.Out.Linef("")
		if err := summarizeKeys(s, view.Groups, maxGroups); err != nil {
			return err
		}
	}
	if err := pausedHosts(s, view.PausedHosts); err != nil {
		return err
	}
	s.Out.Linef("")
	_, err = s.Out.List(printer.Table{
		Columns: "CONSUMER|STREAM|BACKLOG|IN FLIGHT|REDELIVERED|OLDEST|READERS", Wide: "LAG",
	}, printer.Rows(view.Consumers, func(c keys.Consumer) printer.Row { return consumerRow(s, c) }))
	return err
}

// maxGroups is the maximum number of listed reasons and hosts.
const maxGroups = 5

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

// maxPausedHosts is the maximum number of listed hosts.
const maxPausedHosts = 5

func pausedHosts(s *session, hosts []keys.PausedHost) error {
	if len(hosts) == 0 {
		return nil
	}
	s.Out.Linef("")
	shown := hosts[:min(len(hosts), maxPausedHosts)]
	_, err := s.Out.List(printer.Table{Columns: "PAUSED HOST|REASON|KEYS|NEXT TRY"},
		printer.Rows(shown, func(h keys.PausedHost) printer.Row {
			reason := keys.Reason(h.Reason, h.Status)
			return printer.Row{Cells: printer.Cells(h.Host, reason, h.Keys, printer.Until(s.Now(), h.NextTry))}
		}))
	if more := len(hosts) - maxPausedHosts; more > 0 {
		s.Out.Linef("%s more, `curlctl timers` lists all waiting keys", printer.Grouped(more))
	}
	return err
}

func consumerRow(s *session, c keys.Consumer) printer.Row {
	return printer.Row{Cells: printer.Cells(
		c.Name, c.Stream, c.Backlog, c.InFlight, c.Redelivered, printer.Age(s.Now(), c.Oldest), c.Readers, c.Lag,
	)}
}

// objectStatus prints the history of one ConfigMap, and the conditions of its Watcher.
func objectStatus(ctx context.Context, s *session, namespace, name string) error {
	view := keys.View{Namespace: namespace, ConfigMap: name, Timeline: []keys.TimelineEntry{}}
	if err := view.ReadCluster(ctx, s.Cluster()); err != nil {
		return err
	}
	if err := view.ReadStreams(ctx, s.Client, s.Now()); err != nil {
		return err
	}
	if !view.Exists && view.Watcher == nil && len(view.Timeline) == 0 {
		return errorf(exitNotFound, "ConfigMap %s/%s: not found", namespace, name)
	}
	if s.Out.ForPrograms() {
		return s.Out.Object("configmap/"+view.ConfigMap, view)
	}
	printFields(s, view)
	_, err := s.Out.List(printer.Table{Columns: "TIME|AGE|WHAT|KEY|DETAIL"},
		printer.Rows(view.Timeline, func(e keys.TimelineEntry) printer.Row {
			return printer.Row{Cells: printer.Cells(
				printer.Clock(e.At), relative(s.Now(), e.At), e.What, e.Key, e.Detail,
			)}
		}))
	return err
}

// sentence formats a condition as one sentence.
func sentence(now time.Time, c keystate.Condition) string {
	text := strings.TrimSpace(string(c.State) + " " + keys.Reason(c.Reason, c.Status))
	if !c.Since.IsZero() && !c.Good() {
		text += " for " + printer.Age(now, c.Since)
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	if c.Next.After(now) && !c.Good() {
		text += ", next try in " + printer.Until(now, c.Next)
	}
	return text
}

func relative(now, at time.Time) string {
	if at.After(now) {
		return "in " + printer.Until(now, at)
	}
	return printer.Age(now, at)
}

func printFields(s *session, view keys.View) {
	name := view.Namespace + "/" + view.ConfigMap
	switch {
	case view.Exists:
	case view.Watcher != nil:
		name += " (does not exist)"
	default:
		name += " (does not exist any more)"
	}
	fields := append(watcherFields(view), []printer.Field{
		{Name: "ConfigMap", Value: name},
		{Name: "UID", Value: view.UID},
		{Name: "Annotation", Value: view.Annotation},
	}...)
	for _, pair := range view.Asks {
		fields = append(fields, printer.Field{Name: "Fetches", Value: pair.String()})
	}
	fields = append(fields, printer.Field{Name: "Ignored", Value: view.Ignored},
		printer.Field{Name: "Problem", Value: view.Problem})
	for _, note := range view.Notes {
		fields = append(fields, printer.Field{Name: "Note", Value: note})
	}
	for _, k := range view.Keys {
		if k.State != keystate.Ignored {
			fields = append(fields, printer.Field{Name: "Key " + k.Key, Value: sentence(s.Now(), k.Condition)})
		}
	}
	s.Out.Fields(fields)
	s.Out.Linef("")
}

// watcherFields returns the name and the conditions of the Watcher, if there is one.
func watcherFields(view keys.View) []printer.Field {
	if view.Watcher == nil {
		return nil
	}
	fields := []printer.Field{{Name: "Watcher", Value: view.Namespace + "/" + view.Watcher.Name}}
	for _, c := range view.Watcher.Conditions {
		value := string(c.Status) + ", " + c.Reason + ": " + c.Message
		fields = append(fields, printer.Field{Name: c.Type, Value: value})
	}
	return fields
}
