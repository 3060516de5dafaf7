package writer_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("A failed fetch", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	It("has one Event for a key without a value, without secrets", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.failure(w.want(cm, "mydata", url), 503))
		got := w.get("cm")
		Expect(got.Data).To(BeEmpty())
		Expect(entry(got, "mydata")).To(And(
			HaveField("Error", "BadStatus"), HaveField("SHA256", ""), HaveField("FailingURL()", url), HaveField("Attempts",
				uint32(1)),
		))
		Expect(w.events(cm)).
			To(ConsistOf("Warning BadStatus: data.example.com responded with 503; key mydata has no value yet [why-empty 8]"))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "POST events"}))
	})

	It("has another Event only for a new reason or for giving up, and one at its end", func() {
		cm := w.create(asking("cm", "mydata="+url))
		want := w.want(cm, "mydata", url)
		first := w.failure(want, 503)
		w.apply(first)
		more := func(class v1.FailureClass, attempts uint32, gaveUp bool) *v1.Result {
			r := w.failure(due(w.want(cm, "mydata", url)), 503)
			r.Cause = v1.Cause_CAUSE_RETRY
			f := r.GetFailure()
			f.Class, f.Attempts, f.GaveUp, f.FirstFailedAt = class, attempts, gaveUp, first.GetFailure().GetFirstFailedAt()
			return r
		}
		w.apply(more(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, 4, false))
		Expect(w.events(cm)).To(HaveLen(1))
		w.apply(more(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, 5, true))
		Expect(w.events(cm)).To(HaveLen(2))
		Expect(entry(w.get("cm"), "mydata")).To(And(HaveField("Attempts", uint32(5)), HaveField("GaveUp", true)))

		w.apply(more(v1.FailureClass_FAILURE_CLASS_TIMEOUT, 6, true))
		Expect(w.events(cm)).To(HaveLen(3))
		Expect(entry(w.get("cm"), "mydata").Error).To(Equal("Timeout"))

		w.apply(w.content(due(w.want(cm, "mydata", url)), "well"))
		Expect(w.events(cm)).To(ConsistOf(
			"Warning BadStatus: data.example.com responded with 503; key mydata has no value yet [why-empty 8]",
			"Warning BadStatus: data.example.com responded with 503; key mydata has no value yet [why-empty 8]",
			"Warning Timeout: data.example.com did not respond in time; key mydata has no value yet [why-empty 6]",
			"Normal Recovered: data.example.com responded; key mydata is up to date",
		))
		got := w.get("cm")
		Expect(got.Data).To(HaveKeyWithValue("mydata", "well"))
		Expect(entry(got, "mydata").Failing()).To(BeFalse())
	})

	It("increases the count of its Event when it is observed again, and writes nothing else", func() {
		cm := w.create(asking("cm", "mydata="+url))
		first := w.failure(w.want(cm, "mydata", url), 404)
		first.GetFailure().GaveUp = true
		w.apply(first)
		version := w.get("cm").ResourceVersion
		later := w.failure(due(w.want(cm, "mydata", url)), 404)
		later.GetFailure().GaveUp, later.GetFailure().Again = true, true
		later.GetFailure().FirstFailedAt = first.GetFailure().GetFirstFailedAt()
		later.ObservedAt = timestamppb.New(time.Now().Add(time.Hour))
		w.apply(later)
		Expect(w.get("cm").ResourceVersion).To(Equal(version))
		Expect(w.eventObjects()).To(ConsistOf(HaveField("Series", HaveField("Count", int32(2)))))
		w.apply(later)
		Expect(w.eventObjects()).To(ConsistOf(HaveField("Series", HaveField("Count", int32(2)))),
			"it was only delivered again")
	})

	It("names the address of a URL in the Event, but not in the log", func() {
		const secret = "https://[2001:db8::1]:8443/x"
		cm := w.create(asking("cm", "mydata="+secret))
		r := w.failure(w.want(cm, "mydata", secret), 0)
		r.GetFailure().Class = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
		r.GetFailure().Host = "2001:db8::1"
		w.apply(r)
		Expect(w.events(cm)).To(ConsistOf("Warning AddressDenied: fetching from 2001:db8::1 is not allowed; " +
			"key mydata has no value yet [why-empty 4]"))
		Expect(string(w.log.Contents())).NotTo(ContainSubstring("2001:db8"))
	})

	It("has one Event even if the writer dies before or after it", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "good"))
		failed := w.failure(due(w.want(cm, "mydata", url)), 500)
		well := w.content(due(w.want(cm, "mydata", url)), "better")
		publishAndDie := func(r *v1.Result) {
			w.calls.dropping("events") // the process ends before its Event is written
			w.publish(r)
			Eventually(w.calls.all).Should(ContainElement("POST events"))
			w.stop()
			w.calls.with(nil)
			w.start()
			w.acknowledged()
		}
		publishAndDie(failed)
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus")))
		publishAndDie(well)
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus"), HavePrefix("Normal Recovered")))
		w.stop()
		w.start() // a new process does not know what was said
		w.publish(failed)
		w.publish(well)
		w.acknowledged()
		Expect(w.events(cm)).To(HaveLen(2))
	})
})
