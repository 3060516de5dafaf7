package watcher_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube/kubetest"
)

var _ = Describe("Publishing", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("publishes a want at once for a new annotation", func(ctx SpecContext) {
		w.watch(func(o *options) { o.config.Coalesce = time.Hour }).awaitReady()
		before := w.create(ctx, "cm", "", withData("other", "value"))
		w.ask(ctx, "cm", "mydata=data.example.com")
		Eventually(w.url(ctx, w.key("cm", "mydata"))).Should(Equal("https://data.example.com"))
		want := w.want(ctx, w.key("cm", "mydata"))()
		Expect(want.GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
		Expect(want.GetUid()).To(Equal(string(before.UID)))
		Expect(want.GetReadFirst()).To(BeFalse())
	})

	It("publishes few wants for a hundred edits in a second, and the last edit wins", func(ctx SpecContext) {
		w.watch().awaitReady()
		tape := w.record("curl.want.>")
		w.create(ctx, "cm", "k=example.com/0")
		Eventually(tape.urls).Should(Equal([]string{"https://example.com/0"}))
		began := time.Now()
		for n := range 100 {
			w.ask(ctx, "cm", fmt.Sprintf("k=example.com/%d", n+1))
		}
		Eventually(w.url(ctx, w.key("cm", "k"))).Should(Equal("https://example.com/100"))
		windows := int(time.Since(began) / (250 * time.Millisecond))
		Expect(len(tape.urls())).To(BeNumerically("<=", windows+3))
	})

	It("publishes few wants before a fetcher has received earlier ones, and those of other namespaces at once",
		func(ctx SpecContext) {
			const most, workers = 512, 8
			other := *w
			other.namespace = kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil)
			pairs := ""
			for n := range 64 {
				pairs += fmt.Sprintf(" k%d=example.com", n)
			}
			w.createAll(ctx, 16, func(n int) string { return fmt.Sprintf("cm-%d", n) }, pairs)
			w.watch(func(o *options) { o.config.Namespaces = []string{w.namespace, other.namespace} })
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">=", most))
			Consistently(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically("<", most+workers))
			other.create(ctx, "cm", "k=example.com")
			Eventually(other.url(ctx, other.key("cm", "k"))).ShouldNot(BeEmpty())
			w.receive(ctx)
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">=", 16*64+1))
		})

	It("publishes a live edit before the initial backlog", func(ctx SpecContext) {
		const backlog, pairs = 200, 30
		name := func(n int) string { return fmt.Sprintf("cm-%03d", n) }
		value := ""
		for n := range pairs {
			value += fmt.Sprintf(" k%d=example.com", n)
		}
		w.createAll(ctx, backlog, name, value)
		i := w.watch(func(o *options) { o.config.Workers = 1 })
		Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">", 0))
		w.receive(ctx)
		w.ask(ctx, name(backlog-1), "k0=example.com/live")
		i.awaitReady()
		Eventually(w.sequence(ctx, pipeline.Requests)).WithTimeout(2 * time.Minute).Should(BeNumerically(">=",
			(backlog-1)*pairs+1))

		By("comparing the order in the stream")
		_, live, err := w.pipeline.LastWant(ctx, w.key(name(backlog-1), "k0"))
		Expect(err).NotTo(HaveOccurred())
		before := 0
		for n := range backlog - 1 {
			_, seq, err := w.pipeline.LastWant(ctx, w.key(name(n), "k0"))
			Expect(err).NotTo(HaveOccurred())
			if seq < live {
				before++
			}
		}
		Expect(before).To(BeNumerically("<", backlog/2))
		Expect(w.url(ctx, w.key(name(backlog-1), "k0"))()).To(Equal("https://example.com/live"))
	})

	It("ignores excluded ConfigMaps and those without annotation", func(ctx SpecContext) {
		w.watch().awaitReady()
		tape := w.record("curl.want.>")
		w.create(ctx, "ignored", "k=example.com/ignored", func(cm *corev1.ConfigMap) {
			cm.Labels = map[string]string{"reconciler": "ignore"}
		})
		w.create(ctx, "plain", "")
		w.patch(ctx, somebody, "plain", object{"data": object{"k": "v"}})
		w.create(ctx, "seen", "k=example.com/seen")
		Eventually(tape.urls).Should(ConsistOf("https://example.com/seen"))
		Consistently(tape.urls).Should(HaveLen(1))
	})

	It("retracts wants that are no longer requested", func(ctx SpecContext) {
		w.watch().awaitReady()
		for _, name := range []string{"deleted", "ignored", "freed"} {
			w.create(ctx, name, "k=example.com")
			Eventually(w.url(ctx, w.key(name, "k"))).ShouldNot(BeEmpty())
		}
		w.delete(ctx, "deleted")
		w.patch(ctx, somebody, "ignored", object{"metadata": object{"labels": object{"reconciler": "ignore"}}})
		w.annotate(ctx, "freed", object{annotation.DefaultKey: nil})
		for _, name := range []string{"deleted", "ignored", "freed"} {
			Eventually(w.retracted(ctx, w.key(name, "k"))).Should(BeTrue(), name)
		}
		Expect(w.results(ctx)).To(BeEmpty(), "nothing was ever written, so nothing is to be removed")
	})
})
