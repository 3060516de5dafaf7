package writer_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
})

var _ = Describe("The shutdown of the writer", func() {
	It("does not wait for an unavailable API server", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.calls.unreachable()
		w.publish(w.content(w.want(cm, "mydata", url), "a"), w.content(w.want(cm, "mydata", url), "b"))
		Eventually(w.health.Ready).Should(BeFalse())
		begun := time.Now()
		w.stop()
		Expect(time.Since(begun)).To(BeNumerically("<", 10*time.Second))
		Expect(w.waiting()).To(BeEquivalentTo(2))
	})
})
