package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// WatchCommand returns the command watch.
func WatchCommand(o *cli.Options) *cobra.Command {
	var name, host string
	var kinds []string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch requests, results and failures live",
		Long: "Prints messages live until interrupted. Messages published while the connection is lost\n" +
			"are missing. Timers that fire are not shown, but the fetches that follow are.",
		Args: cli.NoArgs,
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, kind := range kinds {
			if !slices.Contains(messageKinds(), kind) {
				return cli.Usagef("--only: %q is not one of %s", kind, strings.Join(messageKinds(), ", "))
			}
		}
		return nil
	}
	cmd.RunE = o.Run(func(ctx context.Context, s *cli.Session, _ []string) error {
		return watch(ctx, s, func(m message) bool {
			return (o.Namespace == "" || m.Namespace == o.Namespace) && (name == "" || m.ConfigMap == name) &&
				(host == "" || pipeline.HostIs(m.url, host)) && (len(kinds) == 0 || slices.Contains(kinds, m.What))
		})
	})
	o.BindName(cmd, &name)
	o.BindHost(cmd, &host)
	cmd.Flags().StringSliceVar(&kinds, "only", nil, "only these kinds: "+strings.Join(messageKinds(), ", "))
	cli.Complete(cmd, "only", cobra.FixedCompletions(messageKinds(), cli.Silently))
	return cmd
}

// flushTimeout limits the wait for the subscriptions.
const flushTimeout = 5 * time.Second

func watch(ctx context.Context, s *cli.Session, selected func(message) bool) error {
	messages := make(chan *nats.Msg, 4096)
	for _, subject := range subjects() {
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
			described, ok := describe(m, time.Now())
			if !ok || !selected(described) {
				continue
			}
			if err := printMessage(s.Out, described); err != nil {
				return err
			}
		}
	}
}

func printMessage(out *printer.Printer, m message) error {
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
	case kindWanted:
		return printer.Cyan
	case kindScheduled, kindDue:
		return printer.Grey
	case kindFetched, kindRecovered:
		return printer.Green
	case kindRetracted, kindReconciled:
		return printer.Yellow
	}
	return printer.Red
}

// The kinds of messages.
const (
	kindWanted       = "wanted"
	kindRetracted    = "retracted"
	kindScheduled    = "scheduled"
	kindDue          = "due"
	kindFetched      = "fetched"
	kindRecovered    = "recovered"
	kindFailing      = "failing"
	kindDeadLettered = "failed"
	// kindReconciled: the writer must sync an object with its annotations.
	kindReconciled = "reconcile"
	// kindUnreadable: a result that cannot be decoded.
	kindUnreadable = "unreadable"
)

// messageKinds returns all kinds.
func messageKinds() []string {
	return []string{
		kindWanted, kindRetracted, kindScheduled, kindDue, kindFetched, kindRecovered, kindFailing, kindDeadLettered,
		kindReconciled, kindUnreadable,
	}
}

// subjects returns the subjects to watch.
func subjects() []string {
	return []string{
		pipeline.KindWant.All(), pipeline.KindTimer.All(), pipeline.KindDue.All(),
		pipeline.KindContent.All(), pipeline.KindFailure.All(), pipeline.KindReconcile.All(),
		pipeline.DeadLetterSubjects("", "", pipeline.Key{}),
	}
}

// message is a line of output.
type message struct {
	At        time.Time `json:"at"`
	What      string    `json:"what"`
	Namespace string    `json:"namespace"`
	ConfigMap string    `json:"configMap"`
	Key       string    `json:"key"`
	Detail    string    `json:"detail,omitempty"`
	Host      string    `json:"host,omitempty"`

	url string
}

// describe decodes a message. It returns false if the subject is unknown.
func describe(m *nats.Msg, now time.Time) (message, bool) {
	p := message{At: now.UTC()}
	if reason, _, key, err := pipeline.ParseDeadLetter(m.Subject); err == nil {
		dead := new(v1.DeadLetter)
		if proto.Unmarshal(m.Data, dead) == nil && dead.GetReplayOf() > 0 {
			reason += fmt.Sprintf(", replay of %d", dead.GetReplayOf())
		}
		p.set(kindDeadLettered, key, reason, dead.GetWant().GetUrl())
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
			p.set(kindRetracted, key, "", "")
			return p, true
		}
		p.set(kindWanted, key, pipeline.CauseName(w.GetCause())+" "+deadletter.WithoutQuery(w.GetUrl()), w.GetUrl())
	case pipeline.KindTimer, pipeline.KindDue:
		due, _ := pipeline.DecodeDue(key, m.Data) // empty if unreadable
		what, detail := kindDue, pipeline.CauseName(due.GetCause())
		if kind == pipeline.KindTimer {
			what, detail = kindScheduled, detail+" "+m.Header.Get(jetstream.ScheduleHeader)
		}
		p.set(what, key, detail, due.GetWant().GetUrl())
	default:
		p.result(key, m.Data)
	}
	return p, true
}

func (p *message) set(what string, key pipeline.Key, detail, url string) {
	p.What, p.Namespace, p.ConfigMap, p.Key = what, key.Namespace, key.Name, key.Key
	p.Detail, p.Host, p.url = detail, pipeline.HostOf(url), url
}

func (p *message) result(key pipeline.Key, data []byte) {
	r, err := pipeline.DecodeResult(key, data)
	url := r.GetWant().GetUrl()
	switch out := r.GetOutcome().(type) {
	case *v1.Result_Content:
		p.set(kindFetched, key, fmt.Sprintf("%d bytes", len(out.Content.GetBody())), url)
	case *v1.Result_Unmodified:
		p.set(kindRecovered, key, "unmodified", url)
	case *v1.Result_Reconcile:
		detail := "status to correct"
		if out.Reconcile.GetRemove() {
			detail = "keys to remove"
		}
		p.set(kindReconciled, key, detail, "")
	case *v1.Result_Failure:
		detail := fmt.Sprintf("%s, attempt %d", pipeline.Reason(out.Failure.GetClass()), out.Failure.GetAttempts())
		if out.Failure.GetGaveUp() {
			detail += ", gave up"
		}
		p.set(kindFailing, key, detail, url)
	default:
		p.set(kindUnreadable, key, fmt.Sprint(err), "")
	}
}
