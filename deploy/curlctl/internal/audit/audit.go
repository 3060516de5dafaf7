// Package audit records the actions of operators before they are done.
package audit

import (
	"cmp"
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

// Action of an operator.
type Action struct {
	// Name is replay, refetch, purge, pause or resume.
	Name string
	// Filter has the flags and arguments that select messages, joined by the function Filter.
	Filter string
	// Selected is the number of selected messages.
	Selected int
	// OnBehalfOf is the person signed in to a console that has its own NATS user.
	OnBehalfOf string
	// Via is CLI or Console.
	Via string
}

// filterMax is the maximum length of a filter in a record, in bytes.
const filterMax = 1 << 10

// Filter joins flags and arguments for the record, and truncates a long list.
func Filter(words []string) string {
	text := strings.Join(words, " ")
	if len(text) > filterMax {
		text = text[:filterMax] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// endTimeout limits publishing the end record after ctx has ended.
const endTimeout = 5 * time.Second

// Do records that the user of the connection starts an action, does it, and records how it ended, even if
// ctx has ended meanwhile. If it cannot record the start, it does nothing.
func Do(
	ctx context.Context, conn *natsconn.Connection, a Action, now func() time.Time,
	do func(context.Context) (done, skipped int, err error),
) error {
	user, err := conn.User(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	record := &v1.Audit{
		Action: a.Name, User: user.Name, Filter: a.Filter, Selected: uint64(a.Selected), BeganAt: timestamppb.New(now()),
		OnBehalfOf: a.OnBehalfOf, Via: a.Via,
	}
	if err := conn.Client.PublishAudit(ctx, record); err != nil {
		return err
	}
	done, skipped, err := do(ctx)
	record.Done, record.Skipped, record.EndedAt = uint64(done), uint64(skipped), timestamppb.New(now())
	if ctx.Err() != nil { // interrupted: do not wait long
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
	}
	ended := replay.Retry(ctx, func(ctx context.Context) error { return conn.Client.PublishAudit(ctx, record) })
	return cmp.Or(err, ended)
}

// Once adapts an action of one step to Do.
func Once(do func(context.Context) error) func(context.Context) (done, skipped int, err error) {
	return func(ctx context.Context) (done, skipped int, err error) {
		if err := do(ctx); err != nil {
			return 0, 0, err
		}
		return 1, 0, nil
	}
}
