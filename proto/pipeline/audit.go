package pipeline

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// PublishAudit keeps what an operator does, beside the failures. Its subject is
// curl.audit.<action>.<user>.<begin in Unix nanoseconds>: a user whom the
// server lets publish curl.audit.*.<user>.> only can sign for nobody else. A
// second one with the same begin tells how it ended.
func (c *Client) PublishAudit(ctx context.Context, a *v1.Audit) error {
	data, err := proto.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode audit: %w", err)
	}
	m := nats.NewMsg(auditPrefix + token(a.GetAction()) + "." + token(a.GetUser()) + "." +
		strconv.FormatInt(a.GetBeganAt().AsTime().UnixNano(), 10))
	m.Data = data
	if _, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Failures)); err != nil {
		return fmt.Errorf("publish audit of %s: %w", a.GetAction(), sentinel(err))
	}
	return nil
}

// AuditSubject is what a user who may sign for nobody else publishes to.
func AuditSubject(user string) string { return auditPrefix + "*." + token(user) + ".>" }

// Audits reads what operators did, the newest first.
func (c *Client) Audits(ctx context.Context) iter.Seq2[*v1.Audit, error] {
	return func(yield func(*v1.Audit, error) bool) {
		last := map[string]*v1.Audit{}
		var order []string
		for m, err := range c.Scan(ctx, Range{Stream: Failures, Subject: auditPrefix + ">"}) {
			if err != nil {
				yield(nil, err)
				return
			}
			a := new(v1.Audit)
			if err := proto.Unmarshal(m.Data, a); err != nil {
				yield(nil, fmt.Errorf("decode audit %d: %w (%w)", m.Sequence, ErrMalformed, err))
				return
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
