package writer_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

var _ = Describe("A removed pair", func() {
	var w *world

	// taken returns an object with the keys a and b, where b is no longer annotated.
	taken := func() *corev1.ConfigMap {
		GinkgoHelper()
		cm := w.create(asking("cm", "a="+url+" b="+url))
		w.apply(w.content(w.want(cm, "a", url), "A"), w.content(w.want(cm, "b", url), "B"))
		return w.edit("cm", func(cm *corev1.ConfigMap) { cm.Annotations[annotation.DefaultKey] = "a=" + url })
	}

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("has its key removed", func() {
		w.start()
		w.apply(w.reconcile(taken()))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"a": "A"}))
		Expect(entry(got, "b")).To(BeZero())
		Expect(entry(got, "a").SHA256).To(Equal(sum("A")))
	})

	It("has the status removed if it was the last", func() {
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "\xff"))
		got := w.edit("cm", func(cm *corev1.ConfigMap) { delete(cm.Annotations, annotation.DefaultKey) })
		w.apply(w.reconcile(got))
		got = w.get("cm")
		Expect(got.Annotations).To(BeEmpty())
		Expect(got.BinaryData).To(BeEmpty())
	})

	It("keeps its key with --prune=false", func() {
		w.config.Prune = false
		w.start()
		w.apply(w.reconcile(taken()))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
		Expect(entry(got, "b")).To(BeZero())
	})

	It("keeps its key if another field manager also owns it, with one Event", func() {
		w.start()
		taken()
		applied := must(w.kube.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx(), "cm", types.ApplyPatchType,
			[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":{"b":"B"}}`),
			metav1.PatchOptions{FieldManager: "kustomize-controller"}))
		r := w.reconcile(applied)
		w.apply(r)
		w.publish(r)
		w.acknowledged()
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
		Expect(entry(got, "b")).To(BeZero())
		Expect(w.events(got)).To(ConsistOf("Warning KeyExists: key b is no longer annotated but kept: field manager " +
			"kustomize-controller also owns it"))
	})
})
