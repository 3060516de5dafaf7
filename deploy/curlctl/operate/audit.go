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

// PublishAudit records an action of an operator under the subject curl.record.<action>.<user>.<start>, with the
// start in Unix nanoseconds. A user who may only publish curl.record.*.<user>.> cannot use another name. A second
// record with the same start reports how the action ended.
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

// AuditSubjects returns the pattern of the records that a user may publish (empty: of all users).
func AuditSubjects(user string) string {
	return strings.TrimSuffix(pipeline.AuditSubject("", user, ""), "*") + ">"
}

// maxOpen is the maximum number of end records held until their start records are read. Far fewer actions overlap.
const maxOpen = 1024

// Audits reads the actions of operators, newest first, with one record per action: the end record if there
// is one. Action and user come from the subject, which the server has checked.
func (c *Client) Audits(ctx context.Context) iter.Seq2[*v1.Audit, error] {
	messages := c.backwards(ctx, pipeline.Range{Stream: pipeline.Audit, Subject: AuditSubjects("")})
	return func(yield func(*v1.Audit, error) bool) {
		ends := map[string]*v1.Audit{}
		for r, err := range decoded(c, messages, audit) {
			switch {
			case err == nil && r.GetEndedAt() != nil && len(ends) < maxOpen:
				if ends[r.subject] == nil { // else it was published again after a lost acknowledgement
					ends[r.subject] = r.Audit
				}
				continue
			case err == nil && ends[r.subject] != nil:
				r.Audit = ends[r.subject]
				delete(ends, r.subject)
			}
			if !yield(r.Audit, err) || err != nil {
				return
			}
		}
		expired := slices.SortedFunc(maps.Values(ends), func(a, b *v1.Audit) int {
			return b.GetBeganAt().AsTime().Compare(a.GetBeganAt().AsTime())
		})
		for _, a := range expired { // the start record
			if !yield(a, nil) {
				return
			}
		}
	}
}

// record is an audit record with its subject, which the start and the end of an action share.
type record struct {
	*v1.Audit
	subject string
}

func audit(m pipeline.Message) (record, error) {
	action, user, err := pipeline.ParseAudit(m.Subject)
	if err != nil {
		return record{}, fmt.Errorf("read audit %d: %w", m.Sequence, err)
	}
	a := new(v1.Audit)
	if err := proto.Unmarshal(m.Data, a); err != nil {
		return record{}, fmt.Errorf("decode audit %d: %w (%w)", m.Sequence, pipeline.ErrMalformed, err)
	}
	a.Action, a.User = action, user
	return record{a, m.Subject}, nil
}
