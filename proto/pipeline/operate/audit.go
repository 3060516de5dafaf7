package operate

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// PublishAudit records what an operator does. Its subject is
// curl.record.<action>.<user>.<begin in Unix nanoseconds>: a user whom the
// server lets publish curl.record.*.<user>.> only can sign for no other. A
// second one with the same begin records how it ended.
func (c *Client) PublishAudit(ctx context.Context, a *v1.Audit) error {
	data, err := proto.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode audit: %w", err)
	}
	began := strconv.FormatInt(a.GetBeganAt().AsTime().UnixNano(), 10)
	m := nats.NewMsg(pipeline.AuditSubject(a.GetAction(), a.GetUser(), began))
	m.Data = data
	if _, err := c.JetStream().PublishMsg(ctx, m, jetstream.WithExpectStream(pipeline.Audit)); err != nil {
		return fmt.Errorf("publish audit of %s: %w", a.GetAction(), err)
	}
	return nil
}

// AuditSubjects is what a user who may sign for no other publishes to.
func AuditSubjects(user string) string {
	return strings.TrimSuffix(pipeline.AuditSubject("", user, ""), "*") + ">"
}

// Audits reads what operators did, the newest first. Action and user are those
// of the subject, which the server has checked, whatever is in the record. A
// record that cannot be read is an error that is Unreadable, and does not end it.
// Those of earlier versions, which are among the failures, come last.
func (c *Client) Audits(ctx context.Context) iter.Seq2[*v1.Audit, error] {
	return func(yield func(*v1.Audit, error) bool) {
		last := map[string]*v1.Audit{}
		var order []string
		for m, err := range c.records(ctx) {
			var a *v1.Audit
			if err == nil {
				a, err = audit(m)
			}
			if err != nil {
				if !yield(nil, err) || !pipeline.Unreadable(err) {
					return
				}
				continue
			}
			if last[m.Subject] == nil {
				order = append(order, m.Subject)
			}
			last[m.Subject] = a
		}
		for _, subject := range slices.Backward(order) {
			if !yield(last[subject], nil) {
				return
			}
		}
	}
}

// records reads the messages about what operators did, the oldest first.
func (c *Client) records(ctx context.Context) iter.Seq2[pipeline.Message, error] {
	return func(yield func(pipeline.Message, error) bool) {
		for _, r := range []pipeline.Range{
			{Stream: pipeline.Failures, Subject: pipeline.FormerAuditSubjects},
			{Stream: pipeline.Audit, Subject: AuditSubjects("")},
		} {
			for m, err := range c.Scan(ctx, r) {
				if !yield(m, err) {
					return
				}
			}
		}
	}
}

func audit(m pipeline.Message) (*v1.Audit, error) {
	action, user, err := pipeline.ParseAudit(m.Subject)
	if err != nil {
		return nil, fmt.Errorf("read audit %d: %w", m.Sequence, err)
	}
	a := new(v1.Audit)
	if err := proto.Unmarshal(m.Data, a); err != nil {
		return nil, fmt.Errorf("decode audit %d: %w (%w)", m.Sequence, pipeline.ErrMalformed, err)
	}
	a.Action, a.User = action, user
	return a, nil
}
