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

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("A tenant with refused results only", func() {
	// refusing refuses requests for a namespace without the real API server.
	refusing := func(namespace, status string) func(*http.Request, send) (*http.Response, error) {
		return func(r *http.Request, next send) (*http.Response, error) {
			if !strings.Contains(r.URL.Path, "/namespaces/"+namespace+"/") || r.URL.Path == "/readyz" {
				return next(r)
			}
			return reply(r, http.StatusForbidden, nil, status), nil
		}
	}

	DescribeTable("occupies no slot of the consumer", func(ctx SpecContext, status string) {
		w := newWorld(ctx)
		w.calls.with(refusing("refused", status))
		stuck := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "refused", UID: "uid", ResourceVersion: "1"}}
		const n = 4096 + 64 // more than the consumer has slots
		for i := range n {
			stuck.Name = fmt.Sprint("cm-", i/128)
			key := fmt.Sprint("key-", i%128)
			w.publishAsync(w.content(w.want(stuck, key, url), "body"))
		}
		Eventually(w.waiting).Should(BeEquivalentTo(n))
		good := make([]*v1.Result, 10)
		for i := range good {
			cm := w.create(asking(fmt.Sprint("cm-", i), "mydata="+url))
			good[i] = w.content(w.want(cm, "mydata", url), "body")
		}
		w.publish(good...)
		w.startWithout()
		Eventually(w.waiting).WithTimeout(2 * time.Minute).Should(BeZero())
		Expect(w.begun()).To(BeZero(), "no message waits to come back")
		Expect(w.health.Ready()).To(BeTrue(), "others are served")
		for i := range good {
			Expect(w.get(fmt.Sprint("cm-", i)).Data).To(HaveKeyWithValue("mydata", "body"))
		}
	},
		Entry("if the writer lacks a permission there",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"configmaps `+
				`\"cm\" is forbidden: User \"w\" cannot patch resource \"configmaps\""}`),
		Entry("if a webhook refuses there",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"message":"admission webhook `+
				`\"x.example.com\" denied the request: no"}`),
	)
})

var _ = Describe("A tenant with slow results", func() {
	It("does not delay other tenants for long, however many results it has", func(ctx SpecContext) {
		const each = 6 * time.Second // a webhook that does not answer
		w := newWorld(ctx)
		over := make(chan struct{})
		defer close(over)
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/namespaces/slow/") {
				select {
				case <-over:
				case <-time.After(each):
				}
				return reply(r, http.StatusNotFound, nil,
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), nil
			}
			return next(r)
		})
		slow := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "slow", UID: "uid", ResourceVersion: "1"}}
		for i := range 500 {
			slow.Name = fmt.Sprint("cm-", i)
			w.publishAsync(w.content(w.want(slow, "mydata", url), "body"))
		}
		Eventually(w.waiting).Should(BeEquivalentTo(500))
		w.publish(w.content(w.want(w.create(asking("cm", "mydata="+url)), "mydata", url), "body"))
		w.startWithout()
		Eventually(func() map[string]string { return w.get("cm").Data }).WithTimeout(4 * each).
			Should(HaveKeyWithValue("mydata", "body"))
	})
})
