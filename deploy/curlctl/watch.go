package curlctl

import (
	"context"
	"encoding/json"
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

	colour printer.Colour
	url    string
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
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			return s.watch(ctx, func(p passing) bool {
				return (o.namespace == "" || p.Namespace == o.namespace) && (name == "" || p.ConfigMap == name) &&
					(host == "" || p.Host == strings.ToLower(host) || failure.Host(p.url) == strings.ToLower(host)) && (len(what) == 0 || slices.Contains(what, p.What))
			})
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "only ConfigMaps with this name")
	cmd.Flags().StringVar(&host, "host", "", "only this host")
	cmd.Flags().StringSliceVar(&what, "only", nil, "only these: wanted, forgotten, scheduled, due, fetched, recovered, failing, removed, failed")
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
		line, err := json.Marshal(p)
		if err == nil {
			s.out.Linef("%s", line)
		}
		return err
	}
	s.out.Linef("%s  %s%s  %s  %s", p.At.Format(time.TimeOnly), s.out.Paint(p.colour, p.What),
		strings.Repeat(" ", max(0, 9-len(p.What))), printer.Printable(p.Namespace+"/"+p.ConfigMap+"/"+p.Key), printer.Printable(p.Detail))
	return nil
}

// describe reads a message as it passes.
func describe(m *nats.Msg, now time.Time) (passing, bool) {
	p := passing{At: now.UTC()}
	if reason, host, key, err := pipeline.ParseDeadLetter(m.Subject); err == nil {
		dead := new(v1.DeadLetter)
		if proto.Unmarshal(m.Data, dead) == nil && dead.GetReplayOf() > 0 {
			reason += fmt.Sprintf(", replay of %d", dead.GetReplayOf())
		}
		p.set("failed", key, reason, host, printer.Red)
		p.url = dead.GetWant().GetUrl()
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
			p.set("forgotten", key, "", "", printer.Yellow)
			return p, true
		}
		p.set("wanted", key, causeName(w.GetCause())+" "+failure.WithoutQuery(w.GetUrl()), failure.Host(w.GetUrl()), printer.Cyan)
	case pipeline.KindTimer, pipeline.KindDue:
		due, _ := pipeline.DecodeDue(key, m.Data) // what cannot be read is shown without detail
		what, detail := "due", causeName(due.GetCause())
		if kind == pipeline.KindTimer {
			what, detail = "scheduled", detail+" "+m.Header.Get("Nats-Schedule")
		}
		p.set(what, key, detail, failure.Host(due.GetWant().GetUrl()), printer.Grey)
	default:
		p.result(key, m.Data)
	}
	return p, true
}

func (p *passing) set(what string, key pipeline.Key, detail, host string, colour printer.Colour) {
	p.What, p.Namespace, p.ConfigMap, p.Key, p.Detail, p.Host, p.colour = what, key.Namespace, key.Name, key.Key, detail, host, colour
}

func (p *passing) result(key pipeline.Key, data []byte) {
	r, err := pipeline.DecodeResult(key, data)
	host := failure.Host(r.GetWant().GetUrl())
	switch out := r.GetOutcome().(type) {
	case *v1.Result_Content:
		p.set("fetched", key, fmt.Sprintf("%d bytes", len(out.Content.GetBody())), host, printer.Green)
	case *v1.Result_Unmodified:
		p.set("recovered", key, "unmodified", host, printer.Green)
	case *v1.Result_Removed:
		p.set("removed", key, "", host, printer.Yellow)
	case *v1.Result_Failure:
		detail := fmt.Sprintf("%s, attempt %d", pipeline.Reason(out.Failure.GetClass()), out.Failure.GetAttempts())
		if out.Failure.GetGaveUp() {
			detail += ", gave up"
		}
		p.set("failing", key, detail, host, printer.Red)
	default:
		p.set("result", key, fmt.Sprint(err), "", printer.Red)
	}
}
