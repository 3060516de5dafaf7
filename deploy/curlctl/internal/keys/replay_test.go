package keys_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
)

func TestInterruptedReplayFails(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := keys.Replay(ctx, nil, []*keys.Item{{ID: 1, Verdict: keys.Wanted}}, 0, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
