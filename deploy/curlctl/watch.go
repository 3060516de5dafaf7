package curlctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/failure"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// passing is a message that passes, as programs read it.
type passing struct {
	At        time.Time `json:"at"`
	What      string    `json:"what"`
	Namespace string    `json:"namespace"`
	ConfigMap string    `json:"configMap"`
	Key       string    `json:"key"`
	Detail    string    `json:"detail,omitempty"`
	Host      string    `json:"host,omitempty"`

	url string
}

// passed is a kind of what passes and its colour.
type passed struct {
	what   string
	colour printer.Colour
}

// passedKinds are the kinds of what passes, which --only selects from.
func passedKinds() []passed {
	return []passed{
		{"wanted", printer.Cyan},
		{"forgotten", printer.Yellow},
		{"scheduled", printer.Grey},
		{"due", printer.Grey},
		{"fetched", printer.Green},
		{"recovered", printer.Green},
		{"failing", printer.Red},
		{"removed", printer.Yellow},
		{"failed", printer.Red},
		{unreadableResult, printer.Red},
	}
}

// unreadableResult is the kind of a result that cannot be read.
const unreadableResult = "unreadable"

func passedNames() []string {
	var names []string
	for _, k := range passedKinds() {
		names = append(names, k.what)
	}
	return names
}

func (p passing) colour() printer.Colour {
	for _, k := range passedKinds() {
		if k.what == p.What {
			return k.colour
		}
	}
	return 0
}

func watchCommand(o *options) *cobra.Command {
	var name, host string
	var what []string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show requests, results and failures as they pass, until interrupted",
		Long: "Shows messages as they pass. They are not stored for this, so that some may be\n" +
			"missing after a lost connection, and timers that fire are not seen, only what they\n" +
			"lead to; `curlctl failures` and `curlctl timers` show what is kept.",
		Args: noArgs,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		for _, w := range what {
			if !slices.Contains(passedNames(), w) {
				return usagef("--only: %q is not one of %s", w, strings.Join(passedNames(), ", "))
			}
		}
		return o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.watch(ctx, func(p passing) bool {
				return (o.namespace == "" || p.Namespace == o.namespace) && (name == "" || p.ConfigMap == name) &&
					(host == "" || pipeline.HostIs(p.url, host)) && (len(what) == 0 || slices.Contains(what, p.What))
			})
		})(c, args)
	}
	cmd.Flags().StringVar(&name, "name", "", "only ConfigMaps with this name")
	cmd.Flags().StringVar(&host, "host", "", "only this host")
	cmd.Flags().StringSliceVar(&what, "only", nil, "only these: "+strings.Join(passedNames(), ", "))
	complete(cmd, "only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return passedNames(), silently
	})
	complete(cmd, "name", o.completeNames)
	return cmd
}

// flushTimeout bounds the wait until the server knows the subscriptions.
const flushTimeout = 5 * time.Second

// watched are the subjects that watch subscribes to.
func watched() []string {
	return []string{"curl.want.>", "curl.timer.>", "curl.due.>", "curl.result.>", "curl.failure.>"}
}

func (s *session) watch(ctx context.Context, selected func(passing) bool) error {
	messages := make(chan *nats.Msg, 4096)
	for _, subject := range watched() {
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
			p, ok := describe(m, time.Now())
			if !ok || !selected(p) {
				continue
			}
			if err := s.printPassing(p); err != nil {
				return err
			}
		}
	}
}

func (s *session) printPassing(p passing) error {
	if s.out.ForPrograms() {
		line, err := printer.JSON(p)
		if err == nil {
			s.out.Linef("%s", line)
		}
		return err
	}
	s.out.Linef("%s  %s%s  %s  %s", p.At.Format(time.TimeOnly), s.out.Paint(p.colour(), p.What),
		strings.Repeat(" ", max(0, 10-len(p.What))), printer.Printable(p.Namespace+"/"+p.ConfigMap+"/"+p.Key), printer.Printable(p.Detail))
	return nil
}

// describe reads a message as it passes.
func describe(m *nats.Msg, now time.Time) (passing, bool) {
	p := passing{At: now.UTC()}
	if reason, _, key, err := pipeline.ParseDeadLetter(m.Subject); err == nil {
		dead := new(v1.DeadLetter)
		if proto.Unmarshal(m.Data, dead) == nil && dead.GetReplayOf() > 0 {
			reason += fmt.Sprintf(", replay of %d", dead.GetReplayOf())
		}
		p.set("failed", key, reason, dead.GetWant().GetUrl())
		return p, true
	}
	kind, key, err := pipeline.ParseSubject(m.Subject)
	if err != nil {
		return p, false
	}
	switch kind {
	case pipeline.KindWant:
		w, err := pipeline.DecodeWant(key, m.Data)
		if err == nil && w == nil {
			p.set("forgotten", key, "", "")
			return p, true
		}
		p.set("wanted", key, pipeline.CauseName(w.GetCause())+" "+failure.WithoutQuery(w.GetUrl()), w.GetUrl())
	case pipeline.KindTimer, pipeline.KindDue:
		due, _ := pipeline.DecodeDue(key, m.Data) // what cannot be read is shown without detail
		what, detail := "due", pipeline.CauseName(due.GetCause())
		if kind == pipeline.KindTimer {
			what, detail = "scheduled", detail+" "+m.Header.Get("Nats-Schedule")
		}
		p.set(what, key, detail, due.GetWant().GetUrl())
	default:
		p.result(key, m.Data)
	}
	return p, true
}

func (p *passing) set(what string, key pipeline.Key, detail, url string) {
	p.What, p.Namespace, p.ConfigMap, p.Key, p.Detail, p.Host, p.url = what, key.Namespace, key.Name, key.Key, detail, pipeline.HostOf(url), url
}

func (p *passing) result(key pipeline.Key, data []byte) {
	r, err := pipeline.DecodeResult(key, data)
	url := r.GetWant().GetUrl()
	switch out := r.GetOutcome().(type) {
	case *v1.Result_Content:
		p.set("fetched", key, fmt.Sprintf("%d bytes", len(out.Content.GetBody())), url)
	case *v1.Result_Unmodified:
		p.set("recovered", key, "unmodified", url)
	case *v1.Result_Removed:
		p.set("removed", key, "", url)
	case *v1.Result_Failure:
		detail := fmt.Sprintf("%s, attempt %d", pipeline.Reason(out.Failure.GetClass()), out.Failure.GetAttempts())
		if out.Failure.GetGaveUp() {
			detail += ", gave up"
		}
		p.set("failing", key, detail, url)
	default:
		p.set(unreadableResult, key, fmt.Sprint(err), "")
	}
}
