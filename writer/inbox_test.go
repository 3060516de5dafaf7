package writer_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A malformed message", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	It("becomes a dead letter with its subject and payload, and does not delay others", func() {
		cm := w.create(asking("cm", "mydata="+url))
		good := w.content(w.want(cm, "mydata", url), "body")
		key := pipeline.KeyOf(good.GetWant())
		raw := func(subject string, data []byte) { must(w.js.Publish(w.ctx(), subject, data)) }
		raw("curl.result.content.ns.name", []byte("too few tokens"))
		raw("curl.result.content.ns.name.*", []byte("not escaped"))
		raw(key.Content(), []byte("\xffgarbage"))
		raw(key.Content(), nil)
		raw(key.Content(), []byte(strings.Repeat("long ", 50_000)))
		w.publish(good)
		w.acknowledged()
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		deadLetters := w.deadLetters()
		Expect(deadLetters).To(HaveLen(5))
		for _, letter := range deadLetters {
			Expect(letter.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_MALFORMED))
			Expect(len(letter.GetPayload())).To(BeNumerically("<=", 64<<10))
		}
		// Messages are handled concurrently, so dead letters come in any order.
		Expect(deadLetters).To(ContainElement(And(HaveField("Subject", "curl.result.content.ns.name"),
			HaveField("Payload", []byte("too few tokens")))))
	})

	DescribeTable("becomes a dead letter if the result has", func(spoil func(r *v1.Result), class v1.FailureClass) {
		cm := w.create(asking("cm", "mydata="+url))
		r := w.content(w.want(cm, "mydata", url), "body")
		spoil(r)
		w.apply(r)
		Expect(w.deadLetters()).To(ConsistOf(HaveField("Failure.Class", class)))
		Expect(w.get("cm").ResourceVersion).To(Equal(cm.ResourceVersion))
		Expect(w.calls.all()).To(BeEmpty())
	},
		Entry("a path as name", func(r *v1.Result) { r.GetWant().Name = "../secrets/x" },
			v1.FailureClass_FAILURE_CLASS_MALFORMED),
		Entry("another digest", func(r *v1.Result) { r.GetContent().Sha256 = sum("other") },
			v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH),
		Entry("a protected namespace", func(r *v1.Result) { r.GetWant().Namespace = "kube-system" },
			v1.FailureClass_FAILURE_CLASS_WRITE_FAILED),
	)
})

var _ = Describe("The shutdown of the writer", func() {
	It("finishes running work and gives the rest back without a wait for redelivery", func(ctx SpecContext) {
		w := newWorld(ctx)
		const n = 300
		for i := range n {
			cm := w.create(asking(fmt.Sprint("cm-", i), "mydata="+url))
			w.publish(w.content(w.want(cm, "mydata", url), "body"))
		}
		hold := make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				<-hold
			}
			return next(r)
		})
		w.start()
		DeferCleanup(release)
		Eventually(w.begun).Should(BeNumerically(">", 256), "all that may be in work, and a few in the buffer of the client")
		stopped := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			w.stop()
			close(stopped)
		}()
		Eventually(w.health.Ready).Should(BeFalse())
		release()
		Eventually(stopped).Should(BeClosed())
		left := must(w.waiting())
		Expect(left).To(BeNumerically(">", 0), "stopped in the middle")

		w.start()
		begun := time.Now()
		w.acknowledged()
		Expect(time.Since(begun)).To(BeNumerically("<", pipeline.AckWait*2/3))
		list := must(w.kube.CoreV1().ConfigMaps(w.namespace).List(ctx, metav1.ListOptions{}))
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "cm-") {
				Expect(cm.Data).To(Equal(map[string]string{"mydata": "body"}))
			}
		}
	})

	It("does not wait for an unavailable API server", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.calls.away()
		w.publish(w.content(w.want(cm, "mydata", url), "a"), w.content(w.want(cm, "mydata", url), "b"))
		Eventually(w.health.Ready).Should(BeFalse())
		begun := time.Now()
		w.stop()
		Expect(time.Since(begun)).To(BeNumerically("<", 10*time.Second))
		Expect(w.waiting()).To(BeEquivalentTo(2))
	})
})
