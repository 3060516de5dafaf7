package rule

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheDeadlineIsCPUTimeAndPatienceIsLimited(t *testing.T) {
	for share, want := range map[time.Duration]time.Duration{1: deadline, 2: 2 * deadline, 1000: patience} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := withDeadline(t.Context(), func() time.Duration { return time.Since(began) / share })
			defer cancel()
			<-ctx.Done()
			if took := time.Since(began); took < want || took > want+time.Millisecond {
				t.Errorf("with 1/%d of the CPU, an evaluation ends after %s, not %s", share, took, want)
			}
		})
	}
}
