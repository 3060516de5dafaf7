package operate

import (
	"context"
	"fmt"
	"iter"
	"maps"
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
		return fmt.Errorf("publish audit of %s: %w", a.GetAction(), pipeline.Refusal(err))
	}
	return nil
}

// AuditSubjects is what a user who may sign for no other publishes to.
func AuditSubjects(user string) string {
	return strings.TrimSuffix(pipeline.AuditSubject("", user, ""), "*") + ">"
}

// maxOpen bounds the ends of actions that are kept until their begins are met, and
// is far above what operators do at a time.
const maxOpen = 1024

// Audits reads what operators did, what began last first. It holds a few hundred
// records in memory at a time, however many there are. Action and user are those of
// the subject, which the server has checked, whatever is in the record. A record
// that cannot be read is an error that is Unreadable, and does not end it.
func (c *Client) Audits(ctx context.Context) iter.Seq2[*v1.Audit, error] {
	return func(yield func(*v1.Audit, error) bool) {
		c.actions(ctx, pipeline.Range{Stream: pipeline.Audit, Subject: AuditSubjects("")}, yield)
	}
}

// actions passes on one record for each action: its end, if there is one, where its
// begin stands.
func (c *Client) actions(ctx context.Context, r pipeline.Range, yield func(*v1.Audit, error) bool) {
	ends := map[string]*v1.Audit{}
	for m, err := range c.backwards(ctx, r) {
		var a *v1.Audit
		if err == nil {
			a, err = audit(m)
		}
		switch {
		case err == nil && a.GetEndedAt() != nil && len(ends) < maxOpen:
			if ends[m.Subject] == nil { // else it was published again, as its answer was lost
				ends[m.Subject] = a
			}
			continue
		case err == nil && ends[m.Subject] != nil:
			a = ends[m.Subject]
			delete(ends, m.Subject)
		}
		if !yield(a, err) || err != nil && !pipeline.Unreadable(err) {
			return
		}
	}
	// Begins that have gone by age.
	left := slices.SortedFunc(maps.Values(ends), func(a, b *v1.Audit) int {
		return b.GetBeganAt().AsTime().Compare(a.GetBeganAt().AsTime())
	})
	for _, a := range left {
		if !yield(a, nil) {
			return
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
