package pace

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Every calls do after each interval until ctx is done.
func Every(ctx context.Context, c clock.WithTicker, interval time.Duration, do func()) {
	ticker := c.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			do()
		}
	}
}
