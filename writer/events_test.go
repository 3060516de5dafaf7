package writer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("A failed fetch", func() {
	BeforeEach(func() { w.start() })

	It("has one Event even if the writer dies before or after it", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "good"))
		failed := w.failure(due(w.want(cm, "mydata", url)), 500)
		well := w.content(due(w.want(cm, "mydata", url)), "better")
		publishAndDie := func(r *v1.Result) {
			w.calls.failing("events") // the process ends before its Event is written
			w.publish(r)
			Eventually(w.calls.all).Should(ContainElement("POST events"))
			w.Stop()
			w.calls.with(nil)
			w.start()
			w.acknowledged()
		}
		publishAndDie(failed)
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus")))
		publishAndDie(well)
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus"), HavePrefix("Normal Recovered")))
		w.Stop()
		w.start() // a new process does not know which Events exist
		w.publish(failed)
		w.publish(well)
		w.acknowledged()
		Expect(w.events(cm)).To(HaveLen(2))
	})

	It("has its Event once the admission plugin EventRateLimit permits it, and the writer stays ready", func() {
		const objects = 5
		ready, posts, all := watchReadiness(), atomic.Int32{}, make(chan struct{})
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/events") {
				return next(r)
			}
			switch n := posts.Add(1); {
			case n > objects:
				return next(r)
			case n == objects:
				close(all)
			}
			<-all // so that no other request is served between the refusals
			answer := httptest.NewRecorder()
			kubetest.Answer(apierrors.NewTooManyRequestsError("limit reached on type Namespace for key "+w.namespace))(
				nil, answer, r)
			return answer.Result(), nil
		})
		var failing []*corev1.ConfigMap
		for i := range objects {
			failing = append(failing, w.create(asking(fmt.Sprint("cm-", i), "mydata="+url)))
			w.publish(w.failure(w.want(failing[i], "mydata", url), 500))
		}
		w.acknowledged()
		for _, cm := range failing {
			Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus")))
		}
		Expect(ready()).To(BeTrue(), "in each poll")
		Expect(w.Log).To(gbytes.Say(`"level":"warn".*limit reached.*Event was not written, retrying`))
	})
})
