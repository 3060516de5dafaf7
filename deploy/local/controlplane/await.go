package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// startTimeout bounds the start of a process, 3 s on an idle machine, so that a
// caller without a deadline does not wait for ever.
const startTimeout = 2 * time.Minute

// await calls ready until it returns nil. It gives up when the process ends, when
// ctx does, or after startTimeout.
func (p *process) await(ctx context.Context, interval time.Duration, ready func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Exited():
			return false, p.failure()
		default:
		}
		last = ready(ctx)
		return last == nil, nil
	})
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	}
	if wait.Interrupted(err) {
		return fmt.Errorf("%s not ready: %w (%w); last line of its log: %s", p.name, last, err, lastLine(p.log, p.logStart))
	}
	return err
}
