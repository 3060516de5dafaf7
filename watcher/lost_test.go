package watcher_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// audited shortens the intervals: the grace period is 100 ms, and a timer is overdue after 200 ms.
func audited(o *options) { o.pace.Audit, o.pace.Check = 400*time.Millisecond, 100*time.Millisecond }

// ahead sets the machine's clock ahead.
func ahead(by time.Duration) func(*options) { return func(o *options) { o.pace.Ahead = by } }

func hourly(cm *corev1.ConfigMap) { cm.Annotations["x-kv8s.io/"+annotation.RefreshName] = "1h" }

var _ = Describe("A key with an hourly refresh", func() {
	It("is not requested again if the machine's clock is 10 min ahead", func(ctx SpecContext) {
		w := newWorld(ctx)
		key := w.key("cm", "k")
		w.create(ctx, "cm", "k=example.com", hourly)
		i := w.watch(audited, ahead(10*time.Minute)).awaitReady()
		w.answer(ctx, key, "body")
		Eventually(i.value(own + `keys{state="ok"}`)).Should(BeEquivalentTo(1))
		want, sequence, err := w.pipeline.LastWant(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.pipeline.SetTimer(ctx, &v1.Due{
			Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH, Cached: &v1.Cached{Sha256: digest("body")},
		}, time.Now().Add(5*time.Minute))).Error().NotTo(HaveOccurred())
		w.fetch(ctx)
		Consistently(func() v1.Cause { return w.want(ctx, key)().GetCause() }).WithTimeout(time.Second).
			Should(Equal(v1.Cause_CAUSE_NEW))
	})
})
