package watcher_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = It("A want is signed, and has the time of its request, from the watch event or managedFields",
	func(ctx SpecContext) {
		listed := w.create(ctx, "listed", "k=example.com")
		recorded := listed.ManagedFields[0].Time.Time
		Eventually(time.Now).Should(BeTemporally(">", recorded.Add(1500*time.Millisecond)))
		w.watch().awaitReady()
		Eventually(w.want(ctx, w.key("listed", "k"))).ShouldNot(BeNil())
		asked := func(name string) *v1.Want { return w.want(ctx, w.key(name, "k"))() }
		Expect(asked("listed").GetAskedAt().AsTime()).To(BeTemporally("==", recorded))

		began := time.Now()
		w.wanted(ctx, "live", "example.com")
		Expect(w.trusted.Verify(asked("live"))).To(Succeed(), "it is signed")
		Expect(asked("live").GetAskedAt().AsTime()).To(BeTemporally(">=", began))
		Expect(asked("live").GetAskedAt().AsTime()).To(Equal(asked("live").GetObservedAt().AsTime()))
	})

var _ = It("A watcher publishes nothing at its start if the stream is up to date", func(ctx SpecContext) {
	first := w.watch().awaitReady()
	w.satisfied(ctx, "satisfied", "example.com/a")
	w.wanted(ctx, "waiting", "example.com/b")
	first.Stop()
	before := w.sequence()
	second := w.watch().awaitReady()
	Eventually(second.Log).Should(gbytes.Say("publishing wants"))
	Consistently(w.sequence).Should(Equal(before))
})

// audited shortens the intervals: the grace period is 100 ms, and a timer is overdue after 200 ms.
func audited(o *options) { o.at.Audit, o.at.Check = 400*time.Millisecond, 100*time.Millisecond }

var _ = It("A key with an hourly refresh is not requested again if the machine's clock is 10 min ahead",
	func(ctx SpecContext) {
		key := w.key("cm", "k")
		w.create(ctx, "cm", "k=example.com", func(cm *corev1.ConfigMap) {
			cm.Annotations["x-kv8s.io/"+annotation.RefreshName] = "1h"
		})
		i := w.watch(audited, func(o *options) { o.at.Ahead = 10 * time.Minute }).awaitReady()
		w.answer(ctx, key, "body")
		Eventually(i.Value(own + `keys{state="ok"}`)).Should(BeEquivalentTo(1))
		want, sequence, err := w.pipeline.LastWant(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.pipeline.SetTimer(ctx, &v1.Due{
			Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH,
			Cached: &v1.Cached{Sha256: pipeline.Digest("body")},
		}, time.Now().Add(5*time.Minute))).Error().NotTo(HaveOccurred())
		natstest.AckRequests(GinkgoTB(), w.js)
		Consistently(func() v1.Cause { return w.want(ctx, key)().GetCause() }).WithTimeout(time.Second).
			Should(Equal(v1.Cause_CAUSE_NEW))
	})

// wanted creates a ConfigMap with the key k, and waits for its want.
func (w *world) wanted(ctx context.Context, name, url string) pipeline.Key {
	GinkgoHelper()
	w.create(ctx, name, "k="+url)
	Eventually(w.url(ctx, w.key(name, "k"))).ShouldNot(BeEmpty())
	return w.key(name, "k")
}

// answer waits for the want of a key and acts like the writer: one patch with value and status.
func (w *world) answer(ctx context.Context, key pipeline.Key, body string) {
	GinkgoHelper()
	Eventually(w.want(ctx, key)).ShouldNot(BeNil())
	want, seq, err := w.pipeline.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	held := status.Status{Keys: map[string]status.Entry{key.Key: {
		URL: want.GetUrl(), SHA256: pipeline.Digest(body), Size: int64(len(body)), ChangedAt: time.Now(),
		Fence: status.Fence{Epoch: want.GetEpoch(), Seq: seq},
	}}}
	w.patch(ctx, annotation.FieldManager, key.Name, object{
		"data": object{key.Key: body}, "metadata": object{"annotations": object{annotation.StatusKey: held.String()}},
	})
}

// satisfied creates a ConfigMap with one written key.
func (w *world) satisfied(ctx context.Context, name, url string) pipeline.Key {
	GinkgoHelper()
	key := w.key(name, "k")
	w.create(ctx, name, "k="+url)
	w.answer(ctx, key, "body of "+url)
	return key
}
