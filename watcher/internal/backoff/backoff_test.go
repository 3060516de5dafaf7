package backoff_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	"github.com/kv8s/curl-me-that/watcher/internal/backoff"
)

func TestBackoff(t *testing.T) { suitetest.Run(t, "Backoff") }

var _ = Describe("Repairs in a row", func() {
	It("wait longer and longer from the fourth on, up to 10 min, until the key stays unchanged", func() {
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		var r backoff.Repairs
		var waits []time.Duration
		for range 12 {
			wait := r.Wait(now)
			waits = append(waits, wait)
			now = now.Add(wait)
			r.Count(now)
		}
		Expect(waits).To(HaveExactElements(
			time.Duration(0), time.Duration(0), time.Duration(0), 10*time.Second, 20*time.Second, 40*time.Second,
			80*time.Second, 160*time.Second, 320*time.Second, 10*time.Minute, 10*time.Minute, 10*time.Minute))
		Expect(r.Wait(now.Add(4 * time.Minute))).To(Equal(6 * time.Minute))
		Expect(r.Wait(now.Add(20*time.Minute + time.Second))).To(BeZero())
		r.Count(now.Add(21 * time.Minute))
		Expect(r.Wait(now.Add(21 * time.Minute))).To(BeZero())
	})
})
