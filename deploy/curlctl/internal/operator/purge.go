package operator

import (
	"context"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// CountFailures lets the server count, if it can select what was asked for.
// Entries that cannot be read are counted in unread where they are read.
func CountFailures(ctx context.Context, client *operate.Client, f operate.DeadLetterFilter, unread *readable.Unread) (map[operate.ReasonHost]uint64, error) {
	if f.Exact() {
		return client.CountDeadLetters(ctx, f)
	}
	counts := map[operate.ReasonHost]uint64{}
	for d, err := range readable.Only(unread, client.DeadLetters(ctx, f)) {
		if err != nil {
			return nil, err
		}
		counts[operate.ReasonHost{Reason: d.Reason, Host: d.Host}]++
	}
	return counts, nil
}

// PurgeFailures removes failures, and returns how many; it lets the server do
// so, if it can select what was asked for.
func PurgeFailures(ctx context.Context, client *operate.Client, f operate.DeadLetterFilter) (removed int, err error) {
	if f.Exact() {
		n, err := client.PurgeDeadLetters(ctx, f)
		return int(n), err
	}
	var reported readable.Unread // when they were counted
	for d, err := range readable.Only(&reported, client.DeadLetters(ctx, f)) {
		if err == nil {
			err = client.DeleteDeadLetter(ctx, d.ID)
		}
		if err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
