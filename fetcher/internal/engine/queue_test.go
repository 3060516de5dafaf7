package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/types"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/budget"
)

var _ = Describe("A key that waits for a slot of its host", func() {
	const perHost = 3 // one namespace gets two of them
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })
	few := func(o *fetcherOptions) { o.limits.PerHost = perHost }
	claims := func(f *fetcher, result string) int { return int(f.metric("curlmethat_fetcher_claims_total", result)) }

	It("keeps the fast path of the writer", func() {
		want := w.want(serve(says("hello there")).URL)
		w.fetcher().fetchDue(want, &v1.Due{Cause: v1.Cause_CAUSE_PARKED})
		Expect(w.result().GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(w.result().GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.result().GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
	})

	DescribeTable("is fetched when a slot comes free,",
		func(left types.GomegaMatcher, change ...func(*v1.Want)) {
			slow := w.hangs()
			f := w.fetcher(few)
			f.run()
			keys := w.publishMany(slow, 20, key.Namespace, change...)
			Eventually(func() int { return f.parked("host_busy") }).Should(Equal(len(keys) - perHost + 1))
			w.end()
			Eventually(w.contents).Should(Equal(len(keys)))
			for _, k := range keys {
				Eventually(func() *timer { return w.timerOf(k) }).Should(left)
			}
			Expect(w.pending()).To(BeZero())
			Expect(slow.gets.Load()).To(BeEquivalentTo(len(keys)))
			Expect(claims(f, "won")).To(Equal(len(keys) - perHost + 1))
		},
		Entry("and leaves no timer", BeNil()),
		Entry("and gets the timer of its refresh after its GET",
			And(Not(BeNil()), HaveField("GetCause()", v1.Cause_CAUSE_REFRESH)), every(10*time.Minute)),
	)

	It("has a claim that brings it back if the fetcher ends during the GET", func() {
		release := make(chan struct{})
		var host *origin
		host = serve(func(http.ResponseWriter, *http.Request) {
			if host.gets.Load() < perHost {
				<-release
				return
			}
			<-w.ending
		})
		f := w.fetcher(few)
		f.run()
		keys := w.publishMany(host, perHost, key.Namespace)
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(1))
		close(release)
		Eventually(host.gets.Load).Should(BeEquivalentTo(perHost))
		Expect(w.waiting(keys)).To(HaveLen(1))
		claim := w.timerOf(w.waiting(keys)[0])
		Expect(claim.at).To(BeTemporally("==", w.clock.Now().Add(pipeline.AckWait)))
		Expect(claim.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
		Expect(claim.GetUnended()).To(BeEquivalentTo(1))
	})

	It("becomes a dead letter after too many unfinished claims, and is tried later", func() {
		o := serve(says("hello there"))
		w.fetcher().fetchDue(w.want(o.URL), &v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: 5})
		Expect(o.gets.Load()).To(BeZero())
		Expect(w.result().GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_POISON))
		Expect(w.deadLetter().GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_POISON))
		Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_RECHECK))
	})

	DescribeTable("is claimed before its GET, so that fetchers that it ends are counted, if",
		func(deliveries int, past *v1.Due, unended int) {
			o, fetching, proceed := held("hello there")
			want := w.want(o.URL)
			if past == nil {
				w.publish(want)
			} else {
				w.due(want, past)
			}
			for range deliveries - 1 { // a drain returns messages
				Expect(w.next().Nak()).To(Succeed())
			}
			w.fetcher().step()
			Eventually(fetching).Should(BeClosed())
			Expect(w.timer().GetUnended()).To(BeEquivalentTo(unended))
			close(proceed)
			Eventually(w.contents).Should(Equal(1))
			Eventually(w.timer).Should(BeNil())
			Expect(w.pending()).To(BeZero())
			Expect(w.deadLetters()).To(BeEmpty())
		},
		Entry("its message is delivered again", 2, nil, 1),
		Entry("its message was returned ten times, which counts no more", 11, nil, 1),
		Entry("an earlier claim was not finished", 1, &v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: 1}, 2),
	)

	It("keeps its place when its lease ends, at the cost of one message", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		keys := w.publishMany(slow, perHost, key.Namespace)
		stop := f.run()
		Eventually(func() []pipeline.Key { return w.waiting(keys) }).ShouldNot(BeEmpty())
		k := w.waiting(keys)[0]
		since := w.timerOf(k).GetWaitingSince().AsTime()
		w.clock.Advance(time.Minute)
		w.fire(w.timerOf(k).Due)
		Eventually(func() float64 { return f.metric("curlmethat_fetcher_messages_total", "waits") }).Should(BeEquivalentTo(1))
		Expect(w.timerOf(k).GetWaitingSince().AsTime()).To(BeTemporally("==", since))
		Expect(w.timerOf(k).at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute))
		w.end()
		stop()
	})

	It("is fetched by the fetcher that gets its due", func() {
		slow := w.hangs()
		first, second := w.fetcher(few), w.fetcher(few)
		stop := first.run()
		keys := w.publishMany(slow, 10, key.Namespace)
		Eventually(func() int { return first.parked("host_busy") }).Should(Equal(len(keys) - perHost + 1))
		moved := w.waiting(keys)
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }() // it reads no more messages
		defer func() { <-stopped }()
		second.run()
		for _, k := range moved {
			w.fire(w.timerOf(k).Due)
		}
		Eventually(slow.gets.Load).Should(BeEquivalentTo(2 * (perHost - 1)))
		w.end()
		Eventually(w.contents).Should(Equal(len(keys)))
		Expect(slow.gets.Load()).To(BeEquivalentTo(len(keys)), "no GET is made twice")
	})

	It("blocks no worker, even if a person requests many keys of a slow host", func() {
		slow, fast := w.hangs(), serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.clock = clockOf(time.Now) })
		f.run()
		w.publishMany(slow, 300, "greedy", func(v *v1.Want) { v.Cause, v.Now = v1.Cause_CAUSE_NOW, "1" })
		parked := func() int { return f.parked("host_busy") }
		Eventually(parked).Should(BeNumerically(">=", 300-7))
		// A lease lasts at least 20 s, so a slow machine may reach the end of some.
		once := BeNumerically("<", 2*300)
		Consistently(parked).WithTimeout(3*time.Second).Should(once, "no key is parked again and again")
		w.publishMany(fast, 5, "modest")
		Eventually(fast.gets.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		Expect(parked()).To(once)
	})

	It("does not wait for another namespace that needs a slot for the same URL", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		w.publishMany(slow, 20, "greedy")
		w.publish(w.want(slow.URL+"/19", in("modest")))
		f.run()
		Eventually(slow.gets.Load).Should(BeEquivalentTo(perHost), "the slot reserved for another namespace is used")
	})
})

func TestBackoffDelay(t *testing.T) {
	b := engine.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute}
	const middle, low, high = 0.5, 0.0, 0.999999
	for name, tc := range map[string]struct {
		attempts   uint32
		retryAfter time.Duration
		random     float64
		from, to   time.Duration
	}{
		"first":                  {1, 0, middle, 2 * time.Second, 2 * time.Second},
		"zero counts as first":   {0, 0, middle, 2 * time.Second, 2 * time.Second},
		"second":                 {2, 0, middle, 4 * time.Second, 4 * time.Second},
		"fifth":                  {5, 0, middle, 32 * time.Second, 32 * time.Second},
		"capped":                 {9, 0, middle, 5 * time.Minute, 5 * time.Minute},
		"never overflows":        {math.MaxUint32, 0, middle, 5 * time.Minute, 5 * time.Minute},
		"a fifth less":           {1, 0, low, 1600 * time.Millisecond, 1600 * time.Millisecond},
		"a fifth more":           {1, 0, high, 2399 * time.Millisecond, 2400 * time.Millisecond},
		"as the server requests": {1, time.Minute, low, time.Minute, time.Minute},
		"with jitter after that": {1, time.Minute, high, time.Minute, time.Minute + 400*time.Millisecond},
		"server requests less":   {5, time.Second, middle, 32 * time.Second, 32 * time.Second},
		"jitter below that":      {5, 32 * time.Second, low, 32 * time.Second, 32 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.Delay(tc.attempts, tc.retryAfter, tc.random)
			if got < tc.from || got > tc.to {
				t.Errorf("Delay(%d, %s, %v) = %s, want from %s to %s", tc.attempts, tc.retryAfter, tc.random, got, tc.from, tc.to)
			}
		})
	}
}

func in(namespace string) func(*v1.Want) {
	return func(w *v1.Want) { w.Namespace = namespace }
}

var _ = Describe("The budget of a namespace", func() {
	It("limits its bodies and parks further GETs until it refills", func() {
		w, log := newWorld(natstest.Options{}, pipeline.Topology{}), gbytes.NewBuffer()
		f := w.fetcher(func(o *fetcherOptions) {
			o.config.ResultBytes = budget.Config{Burst: 2500, Refill: 100 * time.Second}
			o.log = log
		})
		o := serve(says(strings.Repeat("x", 1000)))
		for i := range 5 {
			f.fetch(w.want(o.URL, in("greedy"), named("cm", i)))
		}
		Expect(w.contents()).To(Equal(3), "no GET without a budget")
		Expect(f.parked("namespace_bytes")).To(Equal(2))
		Expect(strings.Count(string(log.Contents()), `"budget":"namespace_bytes"`)).To(Equal(1))
		Expect(log).To(gbytes.Say(`"namespace":"greedy".*its budget of bodies`))

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
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		f := w.fetcher(func(o *fetcherOptions) { o.config.Processing = budget.Config{Burst: 1, Refill: time.Hour} })
		o := serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("\x1f\x8bnot gzip"))
		})
		f.fetch(w.want(o.URL, in("greedy"), named("cm", 0)))
		f.fetch(w.want(o.URL+"/other", in("greedy"), named("cm", 1)))
		Expect(o.gets.Load()).To(BeEquivalentTo(1))
		Expect(f.parked("namespace_time")).To(Equal(1))
		f.fetch(w.want(o.URL+"/other", in("modest"), named("cm", 2)))
		Expect(o.gets.Load()).To(BeEquivalentTo(2), "another namespace has its own budget")
	})

	It("is not used up by unpublished bodies", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
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
		Expect(f.parked("namespace_bytes")).To(BeZero())
	})

	It("limits its dead letters, and further failures are published, counted and logged", func() {
		w, log := newWorld(natstest.Options{}, pipeline.Topology{}), gbytes.NewBuffer()
		f := w.fetcher(func(o *fetcherOptions) {
			o.config.DeadLetters = budget.Config{Burst: 2, Refill: time.Hour}
			o.log = log
		})
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
		Expect(f.metric("curlmethat_fetcher_dead_letters_total", "BadStatus")).To(BeEquivalentTo(3))
		Expect(f.metric("curlmethat_fetcher_dead_letters_dropped_total", "")).To(BeEquivalentTo(2))
		Expect(strings.Count(string(log.Contents()), `"dead_letter_dropped":true`)).To(Equal(2))
		Expect(strings.Count(string(log.Contents()), `"budget":"dead_letters"`)).To(Equal(1))
		Expect(w.timerOf(pipeline.Key{Namespace: "greedy", Name: "cm-0003", Key: key.Key})).NotTo(BeNil(),
			"the key is fetched again")
	})
})

// named gives a want a numbered name.
func named(prefix string, n int) func(*v1.Want) {
	return func(w *v1.Want) { w.Name = fmt.Sprintf("%s-%04d", prefix, n) }
}

var _ = Describe("Objects with the same URL", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("do not share an earlier GET with a fetch on demand, for a lost body, or for another digest", func() {
		o := serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.clock, o.config.Sharing.Window = clockOf(time.Now), time.Minute })
		for i, c := range []struct {
			change func(*v1.Want)
			gets   int
		}{
			{func(*v1.Want) {}, 1},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }, 2},
			{func(*v1.Want) {}, 2},
			{func(w *v1.Want) { w.Sha256 = digest("hello there") }, 2},
			{func(w *v1.Want) { w.Sha256 = digest("hello again") }, 3},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_AUDIT }, 4}, // the body was lost before it was written
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_DRIFT }, 5},
		} {
			f.fetch(w.want(o.URL, named("cm", i), c.change))
			Expect(o.gets.Load()).To(BeEquivalentTo(c.gets), "number %d", i)
		}
		want := w.want(o.URL, named("cm", 0))
		w.fire(&v1.Due{Want: want, WantSequence: 1, Cause: v1.Cause_CAUSE_REPLAY})
		f.step()
		Expect(o.gets.Load()).To(BeEquivalentTo(6))
	})

	It("do not share a GET with another validator", func() {
		o := serve(tagged(`"v2"`, "hello there"))
		sum := sha256.Sum256([]byte(o.URL + "/?"))
		f := w.fetcher()
		for i, tag := range []string{"", `"v1"`, `"v2"`} {
			f.fetchDue(w.want(o.URL+"/", named("cm", i), every(time.Hour)), &v1.Due{Cached: &v1.Cached{
				Sha256: digest("old"), Etag: tag, ValidatedBy: hex.EncodeToString(sum[:16]),
				ConditionalUntil: timestamppb.New(w.clock.Now()),
			}})
		}
		Expect(o.gets.Load()).To(BeEquivalentTo(3))
		Expect(w.results()).To(HaveLen(2), "the third response is a 304")
	})

	It("wait for a slow GET at one message per minute, and get its outcome at once", func() {
		const keys = 40
		hanging, _, release := held("hello there")
		f := w.fetcher(func(o *fetcherOptions) { o.limits.Slots = 8 })
		for i := range keys {
			w.publish(w.want(hanging.URL, named("hanging", i)))
		}
		f.run()
		parked := func() int { return f.parked("shared_call_slow") }
		Eventually(parked).Should(Equal(keys - 1))
		Expect(f.inFlight()).To(BeEquivalentTo(1))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
		var last pipeline.Key
		for i := range keys {
			k := pipeline.Key{Namespace: key.Namespace, Name: fmt.Sprintf("hanging-%04d", i), Key: key.Key}
			if t := w.timerOf(k); t != nil {
				Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
				Expect(t.at.Sub(w.clock.Now())).To(Equal(40*time.Second), "first leases have more jitter")
				last = k
			}
		}
		w.fire(w.timerOf(last).Due)
		Eventually(parked).Should(Equal(keys))
		Expect(w.timerOf(last).at.Sub(w.clock.Now())).To(Equal(57 * time.Second))

		close(release)
		Eventually(w.contents).Should(Equal(keys))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
	})
})
