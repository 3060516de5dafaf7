package writer_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A namespace that exceeded its budget", func() {
	DescribeTable("has its results deferred with one Event per key, and delays no other namespace",
		func(kind string, writes, bytes int64) {
			w.config.Writes = budget.Config{Burst: writes, Refill: time.Hour}
			w.config.WriteBytes = budget.Config{Burst: bytes, Refill: time.Hour}
			w.start()
			var last *corev1.ConfigMap
			for i := range 6 {
				last = w.create(asking(fmt.Sprint("cm-", i), "mydata="+url))
				w.apply(w.content(w.want(last, "mydata", url), strings.Repeat("x", 1000)))
			}
			w.apply(w.content(due(w.want(last, "mydata", url)), strings.Repeat("y", 1000)))

			Expect(w.waiting()).To(BeZero())
			held := suitetest.Must(w.js.Consumer(w.ctx(), pipeline.Results, pipeline.WriterConsumer)).CachedInfo().NumAckPending
			Expect(held).To(BeZero(), "no message is held for a retry")
			Expect(w.get("cm-0").Data).To(HaveKey("mydata"))
			Expect(w.get("cm-5").Data).To(BeEmpty())
			Expect(w.events(last)).To(ConsistOf("Warning WriteFailed: the namespace exceeded its write budget; " +
				"key mydata has no value yet; retrying later [why-empty 10]"))
			Expect(w.Value(own + `over_budget_total{budget="` + kind + `"}`)()).To(BeNumerically(">=", 2))
			Expect(w.Value(own + `results_total{outcome="deferred"}`)()).To(BeNumerically(">=", 2))
			Expect(w.Logged(`"budget":"`+kind+`"`)).To(Equal(1), "the change is logged once")

			r, data := w.elsewhere()
			w.apply(r)
			Expect(data()).To(HaveKeyWithValue("mydata", "body"))
		},
		Entry("of writes", "writes", int64(3), int64(0)),
		Entry("of bytes", "write_bytes", int64(0), int64(4500)),
	)

	It("has Events dropped, counted and logged once, but its status is written", func() {
		w.config.Events = budget.Config{Burst: 2, Refill: time.Hour}
		w.start()
		events := 0
		for i := range 4 {
			cm := w.create(asking(fmt.Sprint("cm-", i), "mydata="+url))
			w.apply(w.failure(w.want(cm, "mydata", url), 500))
			Expect(entry(w.get(cm.Name), "mydata").Error).To(Equal("BadStatus"))
			events += len(w.events(cm))
		}
		Expect(events).To(Equal(2))
		Expect(w.Value(own + "events_over_budget_total")()).To(BeEquivalentTo(2))
		Expect(w.Logged(`"budget":"events"`)).To(Equal(1))
	})
})
