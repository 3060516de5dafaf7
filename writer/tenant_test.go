package writer_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A tenant with slow results", func() {
	It("does not delay other tenants for long, no matter how many results it has", func(ctx SpecContext) {
		const each = 6 * time.Second // as with a webhook that does not respond
		w := newWorld(ctx)
		over := make(chan struct{})
		defer close(over)
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/namespaces/slow/") {
				select {
				case <-over:
				case <-time.After(each):
				}
				return reply(r, http.StatusNotFound,
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), nil
			}
			return next(r)
		})
		slow := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "slow", UID: "uid", ResourceVersion: "1"}}
		for i := range 500 {
			slow.Name = fmt.Sprint("cm-", i)
			w.publish(w.content(w.want(slow, "mydata", url), "body"))
		}
		Eventually(w.waiting).Should(BeEquivalentTo(500))
		w.publish(w.content(w.want(w.create(asking("cm", "mydata="+url)), "mydata", url), "body"))
		w.startWithoutWaiting()
		Eventually(func() map[string]string { return w.get("cm").Data }).WithTimeout(4 * each).
			Should(HaveKeyWithValue("mydata", "body"))
	})
})
