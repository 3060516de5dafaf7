package writer_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

var _ = Describe("A late result", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	DescribeTable("changes nothing if the object now", func(change func(*corev1.ConfigMap)) {
		cm := w.create(asking("cm", "mydata="+url))
		want := w.want(cm, "mydata", url)
		got := w.edit("cm", change)
		w.apply(w.content(want, "late"), w.failure(want, 500))
		Expect(w.get("cm").ResourceVersion).To(Equal(got.ResourceVersion))
		Expect(w.events(cm)).To(BeEmpty())
	},
		Entry("has another URL", func(cm *corev1.ConfigMap) {
			cm.Annotations[annotation.DefaultKey] = "mydata=https://other.example.com"
		}),
		Entry("has no annotation", func(cm *corev1.ConfigMap) { delete(cm.Annotations, annotation.DefaultKey) }),
		Entry("is to be ignored", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"reconciler": "ignore"} }),
	)

	It("does not create a deleted object", func() {
		cm := w.create(asking("cm", "mydata="+url))
		Expect(w.kube.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx(), "cm", metav1.DeleteOptions{})).To(Succeed())
		w.apply(w.content(w.want(cm, "mydata", url), "late"), w.failure(w.want(cm, "mydata", url), 500), w.reconcile(cm),
			w.content(due(w.want(cm, "mydata", url)), "later"))
		_, err := w.kube.CoreV1().ConfigMaps(w.namespace).Get(w.ctx(), "cm", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
		Expect(w.eventObjects()).To(BeEmpty())
	})

	It("changes nothing in an object that was created again", func() {
		old := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(old, "mydata", url), "first"))
		old = w.get("cm")
		Expect(w.kube.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx(), "cm", metav1.DeleteOptions{})).To(Succeed())
		next := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(old, "mydata", url), "late"), w.failure(due(w.want(old, "mydata", url)), 500))
		Expect(w.get("cm").ResourceVersion).To(Equal(next.ResourceVersion))
		By("having the same version by accident")
		forged := w.want(next, "mydata", url)
		forged.Uid = string(old.UID)
		w.apply(w.content(forged, "forged"))
		Expect(w.get("cm").ResourceVersion).To(Equal(next.ResourceVersion))

		w.apply(w.content(w.want(next, "mydata", url), "second"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "second"}))
	})

	It("loses unless it was fetched later from streams that were restored from a snapshot", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "first"))
		confirming, late := w.content(due(w.want(cm, "mydata", url)), "first"), w.content(due(w.want(cm, "mydata", url)),
			"late")
		again := w.content(due(w.want(cm, "mydata", url)), "after the restore")
		confirming.Sequence += 100
		w.apply(confirming)
		w.apply(late)
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "first"}), "it was fetched before")
		By("repeating sequences")
		again.ObservedAt = timestamppb.New(time.Now().Add(2 * time.Minute))
		w.apply(again)
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "after the restore"}))
	})

	It("fits an object that was restored from a backup", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "first"))
		backup := w.get("cm")
		w.apply(w.content(due(w.want(backup, "mydata", url)), "second"))
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data, cm.Annotations = backup.Data, backup.Annotations })
		restored := w.get("cm")
		w.apply(w.content(w.want(restored, "mydata", url), "second"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "second"}))
	})

	It("does not delay the writer if its namespace is being deleted", func() {
		cm := asking("cm", "mydata="+url)
		cm.Finalizers = []string{"example.com/keep"}
		cm = w.create(cm)
		Expect(w.kube.CoreV1().Namespaces().Delete(w.ctx(), w.namespace, metav1.DeleteOptions{})).To(Succeed())
		w.apply(w.content(w.want(cm, "mydata", url), "late"), w.failure(w.want(cm, "mydata", url), 500))
		Expect(string(w.log.Contents())).NotTo(ContainSubstring(`"error"`))
	})

	It("undoes nothing newer in the same batch", func() {
		w.stop()
		cm := w.create(asking("cm", "mydata="+url))
		older, newer := w.content(w.want(cm, "mydata", url), "older"), w.content(w.want(cm, "mydata", url), "newer")
		failed := w.failure(w.want(cm, "mydata", url), 500)
		w.publish(failed, newer, older)
		w.config.Linger = linger
		w.start()
		w.acknowledged()
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "newer"}))
		Expect(entry(got, "mydata").Error).To(Equal("BadStatus"), "its trigger was the last")
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "POST events"}))
	})
})
