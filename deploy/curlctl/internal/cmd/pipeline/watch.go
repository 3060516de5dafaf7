package pipeline

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
)

// WatchCommand returns the command watch.
func WatchCommand(o *cli.Options) *cobra.Command {
	var name, host string
	var kinds []string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch requests, results and failures live",
		Long: "Prints messages live until interrupted. Messages published while the connection is lost\n" +
			"are missing. A timer that fires is visible by the fetch that follows.",
		Args: cli.NoArgs,
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, kind := range kinds {
			if !slices.Contains(traffic.Kinds(), kind) {
				return cli.Usagef("--only: %q is not one of %s", kind, strings.Join(traffic.Kinds(), ", "))
			}
		}
		return nil
	}
	cmd.RunE = o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		return watch(ctx, s, func(m traffic.Message) bool {
			return (o.Namespace == "" || m.Namespace == o.Namespace) && (name == "" || m.ConfigMap == name) &&
				(host == "" || m.HostIs(host)) && (len(kinds) == 0 || slices.Contains(kinds, m.What))
		})
	})
	o.BindName(cmd, &name)
	o.BindHost(cmd, &host)
	cmd.Flags().StringSliceVar(&kinds, "only", nil, "only these kinds: "+strings.Join(traffic.Kinds(), ", "))
	cli.Complete(cmd, "only", cobra.FixedCompletions(traffic.Kinds(), cli.Silently))
	return cmd
}

// flushTimeout limits the wait for the subscriptions.
const flushTimeout = 5 * time.Second

func watch(ctx context.Context, s *cli.Session, selected func(traffic.Message) bool) error {
	messages := make(chan *nats.Msg, 4096)
	for _, subject := range traffic.Subjects() {
		sub, err := s.Conn.ChanSubscribe(subject, messages)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	if err := s.Conn.FlushTimeout(flushTimeout); err != nil {
		return err
	}
	s.Hint("Watching %s, press Ctrl-C to stop.", s.Where)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-messages:
			message, ok := traffic.Describe(m, time.Now())
			if !ok || !selected(message) {
				continue
			}
			if err := printMessage(s.Out, message); err != nil {
				return err
			}
		}
	}
}

func printMessage(out *printer.Printer, m traffic.Message) error {
	if out.ForPrograms() {
		line, err := printer.JSON(m)
		if err == nil {
			out.Linef("%s", line)
		}
		return err
	}
	const whatWidth = 10
	pad := strings.Repeat(" ", max(0, whatWidth-len(m.What)))
	out.Linef("%s  %s%s  %s  %s", m.At.Format(time.TimeOnly), printer.In(colourOf(m.What), m.What), pad,
		m.Namespace+"/"+m.ConfigMap+"/"+m.Key, m.Detail)
	return nil
}

// colourOf returns the colour of a kind of message.
func colourOf(kind string) printer.Colour {
	switch kind {
	case traffic.Wanted:
		return printer.Cyan
	case traffic.Scheduled, traffic.Due:
		return printer.Grey
	case traffic.Fetched, traffic.Recovered:
		return printer.Green
	case traffic.Retracted, traffic.Reconciled:
		return printer.Yellow
	}
	return printer.Red
}
