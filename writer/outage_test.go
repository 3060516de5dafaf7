package writer_test

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("An API server", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	lines := func(level string) (found []string) {
		for line := range strings.SplitSeq(string(w.log.Contents()), "\n") {
			if strings.Contains(line, `"level":"`+level+`"`) {
				found = append(found, line)
			}
		}
		return found
	}

	It("that forbids patches causes one log line and one Event per key, and holds up no message", func() {
		w.start()
		w.calls.responding(http.MethodPatch, http.StatusForbidden, forbidden("patch", "configmaps"))
		cm := w.create(asking("cm", "mydata="+url))
		other := w.create(asking("other", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"), w.content(w.want(other, "mydata", url), "body"))
		Eventually(w.health.Ready).Should(BeFalse())
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(
			"Warning WriteFailed: curl-me-that may not write ConfigMaps in this namespace; key mydata waits for the " +
				"permission [why-empty 10]"))
		w.acknowledged()
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.events(cm)).To(HaveLen(1))
		Expect(lines("error")).To(ConsistOf(ContainSubstring("grant get and patch of configmaps")))
		w.calls.with(nil)
		for _, object := range []*corev1.ConfigMap{cm, other} {
			w.apply(w.content(due(w.want(object, "mydata", url)), "body"))
			Expect(w.get(object.Name).Data).To(HaveKeyWithValue("mydata", "body"))
		}
		Expect(w.health.Ready()).To(BeTrue())
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed: "),
			"Normal Recovered: data.example.com responded; key mydata is up to date"))
	})

	It("that refuses Events still gets values", func() {
		w.start()
		w.calls.responding(http.MethodPost, http.StatusForbidden, forbidden("create", "events"))
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.failure(w.want(cm, "mydata", url), 500))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(lines("error")).To(HaveLen(1))
	})

	It("that is deleting a namespace causes no error in the log", func() {
		w.start()
		cm := asking("cm", "mydata="+url)
		cm.Finalizers = []string{"example.com/keep"}
		cm = w.create(cm)
		Expect(w.kube.CoreV1().Namespaces().Delete(w.ctx(), w.namespace, metav1.DeleteOptions{})).To(Succeed())
		w.apply(w.content(w.want(cm, "mydata", url), "late"), w.failure(w.want(cm, "mydata", url), 500))
		Expect(lines("error")).To(BeEmpty())
	})
})

// forbidden is the response of the API server to a user without a permission.
func forbidden(verb, resource string) string {
	return `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
		`"message":"User \"writer\" cannot ` + verb + ` resource \"` + resource + `\" in API group \"\""}`
}
