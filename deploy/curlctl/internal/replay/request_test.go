package replay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
)

func TestInterruptedReplayFails(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := replay.Request(ctx, nil, []*replay.Item{{ID: 1, Verdict: replay.Wanted}}, 0, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
