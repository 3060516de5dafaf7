package curlctl

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

func statusCommand(o *options) *cobra.Command {
	var kube cluster.Options
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE/NAME]",
		Short: "Show the pipeline at a glance, or all about one ConfigMap (reads Kubernetes)",
		Long: "Without an argument shows the pipeline: backlog, in flight, timers, failures and\n" +
			"consumers. With one it reads the ConfigMap's metadata from Kubernetes and shows\n" +
			"what it asks for, what is wanted, scheduled and written, and what has failed.",
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
			return s.objectStatus(ctx, kube, namespace, name)
		})(c, args)
	}
	kube.BindFlags(cmd.Flags())
	return cmd
}

// overview is the pipeline as programs read it.
type overview struct {
	Server    string          `json:"server"`
	Paused    bool            `json:"paused"`
	Resumes   *time.Time      `json:"resumesAt,omitempty"`
	Wants     int             `json:"wants"`
	Timers    timersSeen      `json:"timers"`
	Failures  int             `json:"failures"`
	LastHour  int             `json:"failuresLastHour"`
	Consumers []consumerState `json:"consumers"`
}

type timersSeen struct {
	Pending int        `json:"pending"`
	Overdue int        `json:"overdue"`
	Minute  int        `json:"dueWithinMinute"`
	Next    *time.Time `json:"next,omitempty"`
}

type consumerState struct {
	Name     string     `json:"name"`
	Stream   string     `json:"stream"`
	Backlog  uint64     `json:"backlog"`
	InFlight int        `json:"inFlight"`
	Again    int        `json:"redelivered"`
	Readers  int        `json:"waitingPulls"`
	Lag      uint64     `json:"lag"`
	Oldest   *time.Time `json:"oldest,omitempty"`
}

func (s *session) overview(ctx context.Context) error {
	view, err := s.readOverview(ctx)
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
	timers := plural(view.Timers.Pending, "timer")
	if view.Timers.Next != nil {
		timers += ", the next in " + printer.Until(s.now(), *view.Timers.Next) + ", " + grouped(view.Timers.Minute) + " within a minute"
	}
	failures := printer.Text(grouped(view.LastHour) + " in the last hour, " + grouped(view.Failures) + " kept")
	if view.LastHour > 0 {
		failures.Colour = printer.Red
	}
	fields := []printer.Field{
		{Name: "NATS", Value: printer.Text(view.Server)},
		{Name: "Fetching", Value: fetching},
		{Name: "Wanted", Value: printer.Text(plural(view.Wants, "key"))},
		{Name: "Scheduled", Value: printer.Text(timers)},
		{Name: "Failures", Value: failures},
	}
	if view.Timers.Overdue > 0 {
		fields = append(fields, printer.Field{Name: "Overdue", Value: printer.In(printer.Red, plural(view.Timers.Overdue, "timer")+"; see `curlctl doctor`")})
	}
	s.out.Fields(fields)
	s.out.Linef("")
	_, err = s.out.List(printer.Dropping(printer.Columns("CONSUMER", "STREAM", "BACKLOG", "IN FLIGHT", "REDELIVERED", "OLDEST", "READERS", "", "LAG"), "REDELIVERED", "STREAM", "OLDEST"),
		func(yield func(printer.Row, error) bool) {
			for _, c := range view.Consumers {
				if !yield(printer.Row{Cells: c.cells(s.now())}, nil) {
					return
				}
			}
		})
	return err
}

func (c consumerState) cells(now time.Time) []printer.Cell {
	oldest, readers := printer.Text(""), printer.Number(c.Readers)
	if c.Oldest != nil {
		oldest = printer.Text(printer.Age(now, *c.Oldest))
	}
	if c.Readers == 0 {
		readers.Colour = printer.Red
	}
	return []printer.Cell{
		printer.Text(c.Name), printer.Text(c.Stream), printer.Number(c.Backlog), printer.Number(c.InFlight), printer.Number(c.Again), oldest, readers, printer.Number(c.Lag),
	}
}

func (s *session) readOverview(ctx context.Context) (overview, error) {
	view := overview{Server: s.Where}
	for _, err := range readable(s, s.Client.Wants(ctx, "", "")) {
		if err != nil {
			return view, err
		}
		view.Wants++
	}
	for t, err := range readable(s, s.Client.Timers(ctx, "", "")) {
		if err != nil {
			return view, err
		}
		view.Timers.see(t.At, time.Now())
	}
	counts, err := s.Client.CountDeadLetters(ctx, operate.DeadLetterFilter{})
	if err != nil {
		return view, err
	}
	for _, n := range counts {
		view.Failures += int(n)
	}
	for _, err := range readable(s, s.Client.DeadLetters(ctx, operate.DeadLetterFilter{Since: s.now().Add(-time.Hour)})) {
		if err != nil {
			return view, err
		}
		view.LastHour++
	}
	return view, s.readConsumers(ctx, &view)
}

func (t *timersSeen) see(at, now time.Time) {
	t.Pending++
	if t.Next == nil || at.Before(*t.Next) {
		t.Next = &at
	}
	if overdue(now, at) {
		t.Overdue++
	}
	if at.Before(now.Add(time.Minute)) {
		t.Minute++
	}
}

func (s *session) readConsumers(ctx context.Context, view *overview) error {
	for _, c := range []struct{ stream, name string }{
		{pipeline.Requests, pipeline.FetcherConsumer}, {pipeline.Results, pipeline.WriterConsumer},
	} {
		stream, err := s.JetStream.Stream(ctx, c.stream)
		if err != nil {
			return err
		}
		consumer, err := stream.Consumer(ctx, c.name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return wrapNotFound("consumer %s of stream %s (`curlctl setup` creates it)", c.name, c.stream)
		}
		if err != nil {
			return err
		}
		info := consumer.CachedInfo()
		state := consumerState{
			Name: c.name, Stream: c.stream, Backlog: info.NumPending, InFlight: info.NumAckPending, Again: info.NumRedelivered,
			Readers: info.NumWaiting, Lag: stream.CachedInfo().State.LastSeq - min(info.AckFloor.Stream, stream.CachedInfo().State.LastSeq),
		}
		if c.name == pipeline.FetcherConsumer {
			view.Paused = info.Paused
			if until := info.Config.PauseUntil; info.Paused && until != nil && time.Until(*until) < forever/2 {
				view.Resumes = until
			}
			if state.Backlog+uint64(state.InFlight) > 0 {
				if at, err := s.Client.Waiting(ctx, info.AckFloor.Stream+1); err == nil {
					state.Oldest = &at
				}
			}
		}
		view.Consumers = append(view.Consumers, state)
	}
	return nil
}
