package engine_test

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

var _ = Describe("A failed attempt", func() {
	var f *fetcher
	BeforeEach(func() { f = w.fetcher() })

	It("leaves a dead letter, a published failure and a timer if it was the last", func() {
		o := serve(fails(http.StatusInternalServerError))
		f.fetch(w.want(o.URL))
		began := w.clock.Now()
		f.elapse()
		Expect(w.deadLetters()).To(BeEmpty())
		f.elapse()

		Expect(o.gets.Load()).To(BeEquivalentTo(3))
		deadLetter := w.deadLetter()
		Expect(deadLetter.GetWant().GetUrl()).To(Equal(o.URL))
		Expect(deadLetter.GetFailure().GetAttempts()).To(BeEquivalentTo(3))
		Expect(deadLetter.GetFailure().GetFirstFailedAt().AsTime()).To(BeTemporally("==", began))
		Expect(deadLetter.GetLastFailedAt().AsTime()).To(BeTemporally("==", w.clock.Now()))
		Expect(string(deadLetter.GetSnippet())).To(ContainSubstring("secret of the server"))
		reason, host, k, err := pipeline.ParseDeadLetter(w.messages(pipeline.DeadLetters)[0].Subject)
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{reason, host, k}).To(Equal([]any{"BadStatus", weburl.HiddenHost, key}))
		Expect(w.result().GetFailure().GetGaveUp()).To(BeTrue())
		Expect(w.timer().at.Sub(w.clock.Now())).To(Equal(time.Hour))
		Eventually(w.pending).Should(BeZero())
	})

	It("delays nothing if the stream refuses its dead letter", func() {
		Expect(w.js.DeleteStream(w.ctx, pipeline.DeadLetters)).To(Succeed())
		bad, good := serve(fails(http.StatusNotFound)), serve(says("hello there"))
		f.run()
		w.publishMany(bad, 100, "bad")
		w.publishMany(good, 5, "good")
		Eventually(good.gets.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		Eventually(f.value("dead_letters_dropped_total")).Should(BeEquivalentTo(100))
		Eventually(w.pending).Should(BeZero())
	})

	It("is logged with host, reason and status, without secrets", func() {
		o := serve(fails(http.StatusForbidden))
		f.fetch(w.want(strings.Replace(o.URL, "127.0.0.1", "localhost", 1) + "/path?token=hidden"))
		Expect(f.logged("\n")()).To(Equal(1))
		f.fetch(w.want(o.URL + "/path?token=hidden"))
		line := string(f.log.Contents())
		for _, part := range []string{
			`"key":"default/cool.map/my.data"`, `"host":"localhost"`, `"cause":"new"`, `"next":"`,
			`"attempt":1`, `"reason":"BadStatus"`, "403",
		} {
			Expect(line).To(ContainSubstring(part))
		}
		for _, part := range []string{"hidden", "path", "secret", "127.0.0.1"} {
			Expect(line).NotTo(ContainSubstring(part))
		}
	})

	It("pauses its host, except for one fetch that a person requests", func() {
		slow := serve(retryLater(http.StatusTooManyRequests, "3600"))
		f.fetch(w.want(slow.URL))
		f.fetch(w.want(slow.URL+"/another", func(w *v1.Want) { w.Cause, w.Now = v1.Cause_CAUSE_NOW, "now" }))
		Expect(slow.gets.Load()).To(BeEquivalentTo(2))
		Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour), "the URL waits as requested")

		f.fetch(w.want(slow.URL + "/third"))
		Expect(slow.gets.Load()).To(BeEquivalentTo(2))
		Expect(w.timer().GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
		Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute), "the host waits for a short time")
	})
})
