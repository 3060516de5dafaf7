// Package traffic describes messages of the pipeline as they are published.
package traffic

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// The kinds of messages.
const (
	Wanted       = "wanted"
	Retracted    = "retracted"
	Scheduled    = "scheduled"
	Due          = "due"
	Fetched      = "fetched"
	Recovered    = "recovered"
	Failing      = "failing"
	DeadLettered = "failed"
	// Reconciled: the writer must bring an object in line with its annotations.
	Reconciled = "reconcile"
	// Unreadable: a result that cannot be decoded.
	Unreadable = "unreadable"
)

// Kinds returns all kinds.
func Kinds() []string {
	return []string{Wanted, Retracted, Scheduled, Due, Fetched, Recovered, Failing, DeadLettered, Reconciled, Unreadable}
}

// Subjects of all messages.
func Subjects() []string {
	return []string{
		pipeline.KindWant.All(), pipeline.KindTimer.All(), pipeline.KindDue.All(),
		pipeline.KindContent.All(), pipeline.KindFailure.All(), pipeline.KindReconcile.All(),
		pipeline.DeadLetterSubjects("", "", pipeline.Key{}),
	}
}

// Message is a message as programs read it.
type Message struct {
	At        time.Time `json:"at"`
	What      string    `json:"what"`
	Namespace string    `json:"namespace"`
	ConfigMap string    `json:"configMap"`
	Key       string    `json:"key"`
	Detail    string    `json:"detail,omitempty"`
	Host      string    `json:"host,omitempty"`

	url string
}

// HostIs reports whether host is the host of the URL; see pipeline.HostIs.
func (p *Message) HostIs(host string) bool { return pipeline.HostIs(p.url, host) }

// Describe decodes a message (false: it does not belong to the pipeline).
func Describe(m *nats.Msg, now time.Time) (Message, bool) {
	p := Message{At: now.UTC()}
	if reason, _, key, err := pipeline.ParseDeadLetter(m.Subject); err == nil {
		dead := new(v1.DeadLetter)
		if proto.Unmarshal(m.Data, dead) == nil && dead.GetReplayOf() > 0 {
			reason += fmt.Sprintf(", replay of %d", dead.GetReplayOf())
		}
		p.set(DeadLettered, key, reason, dead.GetWant().GetUrl())
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
			p.set(Retracted, key, "", "")
			return p, true
		}
		p.set(Wanted, key, pipeline.CauseName(w.GetCause())+" "+deadletter.WithoutQuery(w.GetUrl()), w.GetUrl())
	case pipeline.KindTimer, pipeline.KindDue:
		due, _ := pipeline.DecodeDue(key, m.Data) // an unreadable one has no detail
		what, detail := Due, pipeline.CauseName(due.GetCause())
		if kind == pipeline.KindTimer {
			what, detail = Scheduled, detail+" "+m.Header.Get(jetstream.ScheduleHeader)
		}
		p.set(what, key, detail, due.GetWant().GetUrl())
	default:
		p.result(key, m.Data)
	}
	return p, true
}

func (p *Message) set(what string, key pipeline.Key, detail, url string) {
	p.What, p.Namespace, p.ConfigMap, p.Key = what, key.Namespace, key.Name, key.Key
	p.Detail, p.Host, p.url = detail, pipeline.HostOf(url), url
}

func (p *Message) result(key pipeline.Key, data []byte) {
	r, err := pipeline.DecodeResult(key, data)
	url := r.GetWant().GetUrl()
	switch out := r.GetOutcome().(type) {
	case *v1.Result_Content:
		p.set(Fetched, key, fmt.Sprintf("%d bytes", len(out.Content.GetBody())), url)
	case *v1.Result_Unmodified:
		p.set(Recovered, key, "unmodified", url)
	case *v1.Result_Reconcile:
		detail := "status to correct"
		if out.Reconcile.GetRemove() {
			detail = "keys to remove"
		}
		p.set(Reconciled, key, detail, "")
	case *v1.Result_Failure:
		detail := fmt.Sprintf("%s, attempt %d", pipeline.Reason(out.Failure.GetClass()), out.Failure.GetAttempts())
		if out.Failure.GetGaveUp() {
			detail += ", gave up"
		}
		p.set(Failing, key, detail, url)
	default:
		p.set(Unreadable, key, fmt.Sprint(err), "")
	}
}
