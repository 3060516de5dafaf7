package curlctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

func statusCommand(o *options) *cobra.Command {
	var cluster kube.Options
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE/NAME]",
		Short: "Show the pipeline at a glance, or all about one ConfigMap or Watcher (reads Kubernetes)",
		Long: "Without an argument shows the pipeline: backlog, in flight, timers, failures, hosts\n" +
			"that have asked for a pause, and consumers. With one it reads the ConfigMap's metadata from Kubernetes and shows\n" +
			"what it asks for, what is wanted, scheduled and written, and what has failed; above\n" +
			"that, the conditions of the Watcher that it belongs to. The name may be that of the\n" +
			"Watcher, too.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeObjects,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return o.run(func(ctx context.Context, s *session, _ []string) error { return s.overview(ctx) })(c, args)
		}
		namespace, name, err := o.object(args[0])
		if err != nil {
			return err
		}
		return o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.objectStatus(ctx, cluster, namespace, name)
		})(c, args)
	}
	cluster.BindUserFlags(cmd.Flags())
	return cmd
}

func (s *session) overview(ctx context.Context) error {
	view, err := overview.Read(ctx, s.Connection, &s.unread, s.now)
	if err != nil {
		return err
	}
	if s.out.ForPrograms() {
		return s.out.Object("pipeline", view)
	}
	fetching := printer.In(printer.Green, "running")
	if view.Paused {
		fetching = printer.In(printer.Yellow, "paused until `curlctl resume`")
		if view.Resumes != nil {
			fetching.Text = "paused, goes on in " + printer.Until(s.now(), *view.Resumes)
		}
	}
	timers := printer.Plural(view.Timers.Pending, "timer")
	if view.Timers.Next != nil {
		timers += ", the next in " + printer.Until(s.now(), *view.Timers.Next) + ", " + printer.Grouped(view.Timers.Minute) + " within a minute"
	}
	failures := printer.Text(printer.Grouped(view.LastHour) + " in the last hour, " + printer.Grouped(view.Failures) + " kept")
	if view.LastHour > 0 {
		failures.Colour = printer.Red
	}
	fields := []printer.Field{
		{Name: "NATS", Value: printer.Text(view.Server)},
		{Name: "Fetching", Value: fetching},
		{Name: "Wanted", Value: printer.Text(printer.Plural(view.Wants, "key"))},
		{Name: "Scheduled", Value: printer.Text(timers)},
		{Name: "Failures", Value: failures},
	}
	if view.Timers.Overdue > 0 {
		fields = append(fields, printer.Field{Name: "Overdue", Value: printer.In(printer.Red, printer.Plural(view.Timers.Overdue, "timer")+"; see `curlctl doctor`")})
	}
	s.out.Fields(fields)
	if err := s.printPausedHosts(view.PausedHosts); err != nil {
		return err
	}
	s.out.Linef("")
	_, err = s.out.List(printer.Dropping(printer.Columns("CONSUMER", "STREAM", "BACKLOG", "IN FLIGHT", "REDELIVERED", "OLDEST", "READERS", "", "LAG"), "REDELIVERED", "STREAM", "OLDEST"),
		printer.Rows(view.Consumers, func(c overview.Consumer) printer.Row { return printer.Row{Cells: consumerCells(c, s.now())} }))
	return err
}

// pausedShown is how many paused hosts the overview lists.
const pausedShown = 5

func (s *session) printPausedHosts(hosts []overview.PausedHost) error {
	if len(hosts) == 0 {
		return nil
	}
	s.out.Linef("")
	_, err := s.out.List(printer.Dropping(printer.Columns("PAUSED HOST", "REASON", "KEYS", "NEXT TRY"), "KEYS"), printer.Rows(hosts[:min(len(hosts), pausedShown)], func(h overview.PausedHost) printer.Row {
		return printer.Row{Cells: []printer.Cell{
			printer.Text(h.Host), printer.In(printer.Yellow, deadletter.Reason(h.Reason, h.Status)), printer.Number(h.Keys), printer.Text(printer.Until(s.now(), h.NextTry)),
		}}
	}))
	if more := len(hosts) - pausedShown; more > 0 {
		s.out.Linef("and %s more; `curlctl timers` lists what waits", printer.Grouped(more))
	}
	return err
}

func consumerCells(c overview.Consumer, now time.Time) []printer.Cell {
	oldest, readers := printer.Text(""), printer.Number(c.Readers)
	if c.Oldest != nil {
		oldest = printer.Text(printer.Age(now, *c.Oldest))
	}
	if c.Readers == 0 {
		readers.Colour = printer.Red
	}
	return []printer.Cell{
		printer.Text(c.Name), printer.Text(c.Stream), printer.Number(c.Backlog), printer.Number(c.InFlight), printer.Number(c.Redelivered), oldest, readers, printer.Number(c.Lag),
	}
}
