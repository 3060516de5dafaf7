package engine_test

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The budget of a namespace", func() {
	It("limits its bodies and parks further GETs until it refills", func() {
		f := w.fetcher(func(o *fetcherOptions) {
			o.config.ResultBytes = budget.Config{Burst: 2500, Refill: 100 * time.Second}
		})
		o := serve(says(strings.Repeat("x", 1000)))
		for i := range 5 {
			f.fetch(w.want(o.URL, in("greedy"), named("cm", i)))
		}
		Expect(w.contents()).To(Equal(3), "no GET without a budget")
		Expect(f.parked("namespace_bytes")()).To(BeEquivalentTo(2))
		Expect(f.logged(`"budget":"namespace_bytes"`)()).To(Equal(1))
		Expect(f.log).To(gbytes.Say(`"namespace":"greedy".*its budget of bodies`))

		f.fetch(w.want(o.URL, in("modest"), named("cm", 9)))
		Expect(w.contents()).To(Equal(4), "another namespace has its own budget")

		first := w.timerOf(pipeline.Key{Namespace: "greedy", Name: "cm-0003", Key: key.Key})
		second := w.timerOf(pipeline.Key{Namespace: "greedy", Name: "cm-0004", Key: key.Key})
		Expect(first.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
		Expect(first.GetAttempts()).To(BeZero())
		Expect(second.at.Sub(first.at)).To(BeNumerically(">", time.Second), "each key has its own time")
		w.clock.Advance(first.at.Sub(w.clock.Now()))
		w.fire(first.Due)
		f.step()
		Expect(w.contents()).To(Equal(5))
	})

	It("limits the time in which its compressed bodies are decoded, even bad ones", func() {
		f := w.fetcher(func(o *fetcherOptions) { o.config.Processing = budget.Config{Burst: 1, Refill: time.Hour} })
		o := serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("\x1f\x8bnot gzip"))
		})
		f.fetch(w.want(o.URL, in("greedy"), named("cm", 0)))
		f.fetch(w.want(o.URL+"/other", in("greedy"), named("cm", 1)))
		Expect(o.gets.Load()).To(BeEquivalentTo(1))
		Expect(f.parked("namespace_time")()).To(BeEquivalentTo(1))
		f.fetch(w.want(o.URL+"/other", in("modest"), named("cm", 2)))
		Expect(o.gets.Load()).To(BeEquivalentTo(2), "another namespace has its own budget")
	})

	It("is not used up by unpublished bodies", func() {
		f := w.fetcher(func(o *fetcherOptions) {
			o.config.ResultBytes = budget.Config{Burst: 1500, Refill: time.Hour}
		})
		o := serve(tagged(`"v1"`, strings.Repeat("x", 1000)))
		f.fetch(w.want(o.URL, every(10*time.Minute)))
		for range 5 {
			w.clock.Advance(2 * time.Second)
			w.fire(w.timer().Due)
			f.step()
		}
		Expect(o.gets.Load()).To(BeEquivalentTo(6))
		Expect(f.parked("namespace_bytes")()).To(BeZero())
	})

	It("limits its dead letters, and further failures are published, counted and logged", func() {
		f := w.fetcher(func(o *fetcherOptions) { o.config.DeadLetters = budget.Config{Burst: 2, Refill: time.Hour} })
		o := serve(fails(http.StatusNotFound))
		for i := range 4 {
			f.fetch(w.want(o.URL, in("greedy"), named("cm", i)))
		}
		f.fetch(w.want(o.URL, in("modest"), named("cm", 9)))
		Expect(w.deadLetters()).To(HaveLen(3))
		Expect(w.deadLetters()[2].GetWant().GetNamespace()).To(Equal("modest"), "another namespace has its own budget")
		Expect(w.results()).To(HaveLen(5), "each failure reaches the status")
		for _, r := range w.results() {
			Expect(r.GetFailure().GetGaveUp()).To(BeTrue())
		}
		Expect(f.value(`dead_letters_total{reason="BadStatus"}`)()).To(BeEquivalentTo(3))
		Expect(f.value("dead_letters_dropped_total")()).To(BeEquivalentTo(2))
		Expect(f.logged(`"dead_letter_dropped":true`)()).To(Equal(2))
		Expect(f.logged(`"budget":"dead_letters"`)()).To(Equal(1))
		Expect(w.timerOf(pipeline.Key{Namespace: "greedy", Name: "cm-0003", Key: key.Key})).NotTo(BeNil(),
			"the key is fetched again")
	})
})
