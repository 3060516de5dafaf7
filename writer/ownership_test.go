package writer_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("A key of another owner", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	// hold sets the value of the key like a person.
	hold := func(value string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"mydata": value} }
	}
	// unrecorded empties the record of owners, as any user may.
	unrecorded := func(name string) *corev1.ConfigMap {
		GinkgoHelper()
		cm := must(w.kube.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx(), name, types.MergePatchType,
			[]byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{}))
		Expect(cm.ManagedFields).To(BeEmpty())
		return cm
	}

	It("is never overwritten if the writer never wrote it, and has one Event", func() {
		cm := asking("cm", "mydata="+url)
		cm.Data = map[string]string{"mydata": "theirs"}
		cm = w.create(cm)
		w.apply(w.content(due(w.want(cm, "mydata", url)), "ours"))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "ours, later"), w.failure(due(w.want(cm, "mydata", url)), 500))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "theirs"}))
		Expect(entry(got, "mydata")).To(And(HaveField("Error", "KeyExists"), HaveField("SHA256", "")))
		Expect(w.events(cm)).
			To(ConsistOf("Warning KeyExists: key mydata already exists and is not managed by curl-me-that; " +
				"remove it from the ConfigMap, or choose another key [why-empty 3]"))
	})

	It("is kept if it appears between the fetch and the write", func() {
		cm := w.create(asking("cm", "mydata="+url))
		r := w.content(w.want(cm, "mydata", url), "ours")
		w.edit("cm", hold("theirs"))
		w.apply(r)
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "theirs"}))
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning KeyExists")))
	})

	It("is repaired if the writer wrote it before", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "ours"))
		got := w.edit("cm", hold("edited"))
		want := readFirst(w.want(got, "mydata", url))
		want.Drift, want.Cause = ownerOf(got, "mydata").Fingerprint, v1.Cause_CAUSE_DRIFT
		w.apply(w.content(want, "ours"))
		got = w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "ours"}))
		Expect(ownerOf(got, "mydata").State).To(Equal(annotation.Ours))
		Expect(entry(got, "mydata").Drift).To(BeEmpty())
		Expect(w.events(cm)).To(BeEmpty(), "the watcher tells of drift")
	})

	It("is repaired without a read if the writer wrote it before and it is gone", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "ours"))
		got := w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data = nil })
		want := w.want(got, "mydata", url)
		want.Drift, want.Cause = ownerOf(got, "mydata").Fingerprint, v1.Cause_CAUSE_DRIFT
		w.signer.Sign(want)
		Expect(want.GetDrift()).To(Equal("none"))
		w.calls.reset()
		w.apply(w.content(want, "ours"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "ours"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps"}))
	})

	Context("without a record of its owner", func() {
		It("is kept if the writer never wrote it", func() {
			cm := asking("cm", "mydata="+url)
			cm.Data = map[string]string{"mydata": "theirs"}
			w.create(cm)
			cm = unrecorded("cm")
			w.apply(w.content(readFirst(w.want(cm, "mydata", url)), "ours"))
			Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "theirs"}))
			Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning KeyExists")))
		})

		It("is written if it does not exist", func() {
			w.create(asking("cm", "mydata="+url))
			cm := unrecorded("cm")
			w.apply(w.content(readFirst(w.want(cm, "mydata", url)), "ours"))
			got := w.get("cm")
			Expect(got.Data).To(Equal(map[string]string{"mydata": "ours"}))
			By("satisfying the watcher")
			owner := ownerOf(got, "mydata")
			Expect(owner.State == annotation.Ours || owner.Fingerprint == entry(got, "mydata").Drift).To(BeTrue())

			w.apply(w.content(readFirst(w.want(got, "mydata", url)), "ours"))
			Expect(w.get("cm").ResourceVersion).To(Equal(got.ResourceVersion))
		})
	})

	It("is kept if its owner was removed from the record", func() {
		cm := asking("cm", "mydata="+url)
		cm.Data = map[string]string{"mydata": "theirs"}
		w.create(cm)
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": "b"} })
		cm = w.edit("cm", func(cm *corev1.ConfigMap) {
			cm.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`)
		})
		Expect(ownerOf(cm, "mydata").State).To(Equal(annotation.None))
		w.apply(w.content(readFirst(w.want(cm, "mydata", url)), "ours"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "theirs"}))
	})

	It("is kept if the status is unreadable", func() {
		cm := asking("cm", "mydata="+url)
		cm.Annotations[annotation.StatusKey] = "{garbage"
		cm.Data = map[string]string{"theirs": "value"}
		cm = w.create(cm)
		w.apply(w.content(w.want(cm, "mydata", url), "ours"))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "ours", "theirs": "value"}))
		Expect(entry(got, "mydata").SHA256).To(Equal(sum("ours")))
	})
})

// ownerOf returns the recorded owner of a key.
func ownerOf(cm *corev1.ConfigMap, key string) annotation.Ownership {
	GinkgoHelper()
	owners := must(annotation.ParseOwners(cm.ManagedFields))
	return owners.Of(key)
}
