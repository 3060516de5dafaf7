package curlctl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
)

func watchCommand(o *options) *cobra.Command {
	var name, host string
	var what []string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show requests, results and failures as they pass, until interrupted",
		Long: "Shows messages as they pass. They are not stored for this, so that some may be\n" +
			"missing after a lost connection, and timers that fire are not seen, only what they\n" +
			"lead to; `curlctl failures` and `curlctl timers` list what is stored.",
		Args: noArgs,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		for _, w := range what {
			if !slices.Contains(traffic.Kinds(), w) {
				return usagef("--only: %q is not one of %s", w, strings.Join(traffic.Kinds(), ", "))
			}
		}
		return o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.watch(ctx, func(p traffic.Message) bool {
				return (o.namespace == "" || p.Namespace == o.namespace) && (name == "" || p.ConfigMap == name) &&
					(host == "" || p.HostIs(host)) && (len(what) == 0 || slices.Contains(what, p.What))
			})
		})(c, args)
	}
	o.bindName(cmd, &name)
	cmd.Flags().StringVar(&host, "host", "", "only this host")
	cmd.Flags().StringSliceVar(&what, "only", nil, "only these: "+strings.Join(traffic.Kinds(), ", "))
	complete(cmd, "only", cobra.FixedCompletions(traffic.Kinds(), silently))
	complete(cmd, "host", o.completeHosts)
	return cmd
}

// flushTimeout bounds the wait until the server knows the subscriptions.
const flushTimeout = 5 * time.Second

func (s *session) watch(ctx context.Context, selected func(traffic.Message) bool) error {
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
	s.hint("Watching %s; Ctrl-C ends it.", s.Where)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-messages:
			p, ok := traffic.Describe(m, time.Now())
			if !ok || !selected(p) {
				continue
			}
			if err := s.printPassing(p); err != nil {
				return err
			}
		}
	}
}

func (s *session) printPassing(p traffic.Message) error {
	if s.out.ForPrograms() {
		line, err := printer.JSON(p)
		if err == nil {
			s.out.Linef("%s", line)
		}
		return err
	}
	s.out.Linef("%s  %s%s  %s  %s", p.At.Format(time.TimeOnly), printer.In(colourOf(p.What), p.What),
		strings.Repeat(" ", max(0, 10-len(p.What))), p.Namespace+"/"+p.ConfigMap+"/"+p.Key, p.Detail)
	return nil
}

// colourOf returns the colour of a kind of what passes.
func colourOf(what string) printer.Colour {
	switch what {
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
