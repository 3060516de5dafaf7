// Package operator does what operators do to the pipeline: it keeps the record of
// it first, and removes what was given up.
package operator

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// The values of Action.Via.
const (
	CLI     = "cli"
	Console = "console"
)

// Action is what somebody is about to do.
type Action struct {
	// Name is replay, refetch, purge, pause or resume.
	Name string
	// Filter is what selects, as on the command line; see Filter.
	Filter string
	// Selected is how many messages it is meant for.
	Selected int
	// OnBehalfOf is the person, where the NATS user is a program's.
	OnBehalfOf string
	// Via is CLI or Console.
	Via string
}

// filterMost bounds what selects in a record, in bytes.
const filterMost = 1 << 10

// Filter returns the words by which something was selected for the record, which
// holds the first of them.
func Filter(words []string) string {
	text := strings.Join(words, " ")
	if len(text) > filterMost {
		text = text[:filterMost] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// endTimeout bounds the publish of the end of a record once ctx has ended.
const endTimeout = 5 * time.Second

// Begin begins the record of an action by the user of the connection. Without it
// nothing is done; the returned function completes it with how many were done and
// skipped, also when its context has ended.
func Begin(ctx context.Context, conn *natsconn.Connection, a Action, now func() time.Time) (end func(ctx context.Context, done, skipped int) error, err error) {
	user, err := conn.User(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	record := &v1.Audit{
		Action: a.Name, User: user.Name, Filter: a.Filter, Selected: uint64(a.Selected), BeganAt: timestamppb.New(now()),
		OnBehalfOf: a.OnBehalfOf, Via: a.Via,
	}
	if err := conn.Client.PublishAudit(ctx, record); err != nil {
		return nil, err
	}
	return func(ctx context.Context, done, skipped int) error {
		if ctx.Err() != nil { // what was broken off does not wait long
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
		}
		record.Done, record.Skipped, record.EndedAt = uint64(done), uint64(skipped), timestamppb.New(now())
		return replay.Retry(ctx, func(ctx context.Context) error { return conn.Client.PublishAudit(ctx, record) })
	}, nil
}
