package writer_test

import (
	"net/http"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

var _ = Describe("An object without a record of owners", func() {
	// unrecorded returns an object that was created without any field and annotated later. The API
	// server has no record of its owners.
	unrecorded := func(data string) *corev1.ConfigMap {
		GinkgoHelper()
		w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
		cm := suitetest.Must(w.maps().Patch(w.ctx(), "bare", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+annotation.DefaultKey+`":"mydata=`+url+`"}},"data":`+data+`}`),
			metav1.PatchOptions{}))
		Expect(cm.ManagedFields).To(BeEmpty())
		return cm
	}

	It("gets one with the first body, so that later changes of the key are visible", func() {
		w.start()
		cm := unrecorded(`{"theirs":"value"}`)
		w.apply(w.content(readFirst(w.want(cm, "mydata", url)), "hello there"))

		got := w.get("bare")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "hello there", "theirs": "value"}))
		Expect(ownerOf(got, "mydata").State).To(Equal(annotation.Ours))
		Expect(ownerOf(got, "theirs").State).To(Equal(annotation.Foreign))

		w.apply(w.content(w.want(got, "mydata", url), "\xffbinary"))
		got = w.get("bare")
		Expect(got.Data).To(Equal(map[string]string{"theirs": "value"}))
		Expect(got.BinaryData).To(Equal(map[string][]byte{"mydata": []byte("\xffbinary")}))
	})

	It("is not created again if it is deleted", func() {
		w.start()
		cm := unrecorded(`{}`)
		want := readFirst(w.want(cm, "mydata", url))
		once := sync.OnceFunc(func() {
			defer GinkgoRecover()
			Expect(w.maps().Delete(w.ctx(), "bare", metav1.DeleteOptions{})).To(Succeed())
		})
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				once()
			}
			return next(r)
		})
		w.apply(w.content(want, "hello there"))
		list := suitetest.Must(w.maps().List(w.ctx(),
			metav1.ListOptions{FieldSelector: "metadata.name=bare"}))
		Expect(list.Items).To(BeEmpty())
	})
})

// ownerOf returns the recorded owner of a key.
func ownerOf(cm *corev1.ConfigMap, key string) annotation.Ownership {
	GinkgoHelper()
	return suitetest.Must(annotation.ParseOwners(cm.ManagedFields)).Of(key)
}
