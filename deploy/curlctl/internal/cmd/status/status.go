// Package status has the command status, for the pipeline and for one ConfigMap.
package status

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cmd/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// Command returns the command status.
func Command(o *cli.Options) *cobra.Command {
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
		RunE: o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
			if name == "" {
				return pipeline(ctx, s)
			}
			return object(ctx, s, namespace, name)
		}),
	}
}

func pipeline(ctx context.Context, s *cli.Session) error {
	view, err := overview.Read(ctx, s.Connection, s.Objects(ctx, ""), s.Now)
	if err != nil {
		return err
	}
	if s.Out.ForPrograms() {
		return s.Out.Object("pipeline", view)
	}
	failures := printer.Grouped(view.LastHour) + " in the last hour, " + printer.Grouped(view.Failures) + " kept"
	overdue := printer.Cell{}
	if view.Timers.Overdue > 0 {
		overdue = printer.In(printer.Red, printer.Plural(view.Timers.Overdue, "timer")+", see `curlctl doctor`")
	}
	s.Out.Fields([]printer.Field{
		{Name: "NATS", Value: view.Server},
		{Name: "Fetching", Value: view.Headline(s.Now())},
		{Name: "Scheduled", Value: timers(s, view.Timers)},
		{Name: "Failures", Value: failures},
		{Name: "Overdue", Value: overdue},
	})
	if len(view.Groups) > 0 {
		s.Out.Linef("")
		if err := keys.Summarize(s, view.Groups, maxGroups); err != nil {
			return err
		}
	}
	if err := pausedHosts(s, view.PausedHosts); err != nil {
		return err
	}
	s.Out.Linef("")
	_, err = s.Out.List(printer.Table{
		Columns: "CONSUMER|STREAM|BACKLOG|IN FLIGHT|REDELIVERED|OLDEST|READERS", Wide: "LAG",
		Drop: "REDELIVERED|STREAM|OLDEST",
	}, printer.Rows(view.Consumers, func(c overview.Consumer) printer.Row { return consumerRow(s, c) }))
	return err
}

// maxGroups is the maximum number of listed reasons and hosts.
const maxGroups = 5

func timers(s *cli.Session, t overview.Timers) string {
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

func pausedHosts(s *cli.Session, hosts []overview.PausedHost) error {
	if len(hosts) == 0 {
		return nil
	}
	s.Out.Linef("")
	shown := hosts[:min(len(hosts), maxPausedHosts)]
	_, err := s.Out.List(printer.Table{Columns: "PAUSED HOST|REASON|KEYS|NEXT TRY", Drop: "KEYS"},
		printer.Rows(shown, func(h overview.PausedHost) printer.Row {
			reason := printer.In(printer.Yellow, deadletter.Reason(h.Reason, h.Status))
			return printer.Row{Cells: printer.Cells(h.Host, reason, h.Keys, printer.Until(s.Now(), h.NextTry))}
		}))
	if more := len(hosts) - maxPausedHosts; more > 0 {
		s.Out.Linef("%s more, `curlctl timers` lists all waiting keys", printer.Grouped(more))
	}
	return err
}

func consumerRow(s *cli.Session, c overview.Consumer) printer.Row {
	readers := printer.Cells(c.Readers)[0]
	if c.Readers == 0 {
		readers.Colour = printer.Red
	}
	return printer.Row{Cells: printer.Cells(
		c.Name, c.Stream, c.Backlog, c.InFlight, c.Redelivered, printer.Age(s.Now(), c.Oldest), readers, c.Lag,
	)}
}
