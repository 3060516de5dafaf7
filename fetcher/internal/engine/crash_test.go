package engine_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// unacknowledged is a message whose acknowledgement gets lost, like after a kill.
type unacknowledged struct{ jetstream.Msg }

func (unacknowledged) Ack() error { return nil }

var _ = Describe("A killed fetcher", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	// killed lets one fetcher do everything except the acknowledgement, and another one take over.
	killed := func() {
		GinkgoHelper()
		m := w.next()
		w.fetcher().handle(unacknowledged{m})
		Expect(m.Nak()).To(Succeed())
		w.fetcher().step()
	}

	// triggers counts the triggers of all results. The writer takes one result of each, by its
	// fence.
	triggers := func() int {
		GinkgoHelper()
		sequences := map[uint64]bool{}
		for _, r := range w.results() {
			sequences[r.GetSequence()] = true
		}
		return len(sequences)
	}

	It("causes one more GET, whose result is newer than the first", func() {
		o := serve(says("hello there"))
		w.publish(w.want(o.URL, every(10*time.Minute)))
		killed()
		Eventually(triggers).Should(Equal(2))
		Expect(o.gets.Load()).To(BeEquivalentTo(2))
		Eventually(func() v1.Cause { return w.timer().GetCause() }).Should(Equal(v1.Cause_CAUSE_REFRESH))
		Eventually(w.pending).Should(BeZero())
	})
})

// loggedLines counts the log lines with a text.
func loggedLines(log *gbytes.Buffer, text string) func() int {
	return func() int {
		n := 0
		for line := range strings.Lines(string(log.Contents())) {
			if strings.Contains(line, text) {
				n++
			}
		}
		return n
	}
}

var _ = Describe("A broker in trouble", func() {
	var log *gbytes.Buffer
	logged := func(o *fetcherOptions) { o.log = log }
	BeforeEach(func() { log = gbytes.NewBuffer() })

	Context("with a full stream of results", func() {
		var (
			w *world
			o *origin
			f *fetcher
		)
		BeforeEach(func() {
			w = newWorld(natstest.Options{}, pipeline.Topology{MaxResultBytes: 20_000})
			o = serve(says(strings.Repeat("x", 15_000)))
			f = w.fetcher(logged, func(o *fetcherOptions) { o.inProgressEvery = 50 * time.Millisecond })
			f.fetch(w.want(o.URL, named("first", 0)))
			w.publish(w.want(o.URL + "/another"))
		})

		It("gets the body as soon as the writer has made room", func() {
			beats := w.beats()
			f.run()
			Eventually(loggedLines(log, "stream is full")).Should(Equal(1))
			Eventually(beats).Should(BeNumerically(">", 2), "the message stays with this fetcher")
			Eventually(w.pending).Should(BeEquivalentTo(1))

			stream := must(w.js.Stream(w.ctx, pipeline.Results))
			Expect(stream.Purge(w.ctx)).To(Succeed())

			Eventually(w.results).Should(HaveLen(1))
			Eventually(w.pending).Should(BeZero())
			Expect(o.gets.Load()).To(BeEquivalentTo(2), "the body was kept, not fetched again")
			Expect(loggedLines(log, "takes messages again")()).To(BeZero(), "the stream may have room for one message only")
			w.clock.Advance(10 * time.Second)
			w.publish(w.want(serve(says("hello there")).URL))
			Eventually(loggedLines(log, "takes messages again")).Should(Equal(1))
			Expect(loggedLines(log, "stream is full")()).To(Equal(1))
		})

		It("gets the message back from a draining fetcher", func() {
			stop := f.run()
			Eventually(loggedLines(log, "stream is full")).Should(Equal(1))
			began := time.Now()
			stop()
			Expect(time.Since(began)).To(BeNumerically("<", pipeline.AckWait*2/3))
			m := w.next()
			// An open request of the draining fetcher may receive it again, and gives it back, too.
			Expect(must(m.Metadata()).NumDelivered).To(BeNumerically(">=", 2))
			Expect(time.Since(began)).To(BeNumerically("<", pipeline.AckWait*4/5), "the message was given back before AckWait")
		})
	})

	It("gets the body after an outage during the GET", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		o, fetching, proceed := held("hello there")
		w.publish(w.want(o.URL, every(10*time.Minute)))
		w.fetcher(logged).run()
		Eventually(fetching).Should(BeClosed())
		w.server.Stop()
		close(proceed)
		Eventually(loggedLines(log, "broker does not respond")).Should(Equal(1))
		Expect(w.server.Start()).To(Succeed())

		Eventually(w.results).Should(HaveLen(1))
		Expect(w.timer()).NotTo(BeNil())
		Expect(o.gets.Load()).To(BeEquivalentTo(1))
		Expect(loggedLines(log, "broker does not respond")()).To(Equal(1), "one line per change of state")
	})

	It("that refuses a timer for its size gets a dead letter, without a retry", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		o := serve(says("hello there"))
		w.publish(w.want(o.URL, every(10*time.Minute)))
		requests := must(w.js.Stream(w.ctx, pipeline.Requests))
		config := requests.CachedInfo().Config
		config.MaxMsgSize = 64
		Expect(w.js.UpdateStream(w.ctx, config)).Error().NotTo(HaveOccurred())
		w.fetcher(logged).step()
		Expect(w.deadLetters()).To(ConsistOf(HaveField("Failure.Class", v1.FailureClass_FAILURE_CLASS_MALFORMED)))
		Eventually(w.pending).Should(BeZero())
	})
})

// beats counts the in-progress notifications to the server.
func (w *world) beats() func() int {
	GinkgoHelper()
	var mu sync.Mutex
	n := 0
	_, err := w.js.Conn().Subscribe("$JS.ACK."+pipeline.Requests+".>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if string(m.Data) == "+WPI" {
			n++
		}
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.js.Conn().Flush()).To(Succeed())
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// held serves a body once proceed is closed, and closes fetching at the request.
func held(body string) (o *origin, fetching, proceed chan struct{}) {
	GinkgoHelper()
	fetching, proceed = make(chan struct{}), make(chan struct{})
	return serve(func(w http.ResponseWriter, r *http.Request) {
		close(fetching)
		<-proceed
		says(body)(w, r)
	}), fetching, proceed
}

// timer is a pending timer.
type timer struct {
	*v1.Due
	at     time.Time
	header nats.Header
}

// timerOf returns the pending timer of a key, or nil.
func (w *world) timerOf(k pipeline.Key) *timer {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, pipeline.Requests))
	m, err := stream.GetLastMsgForSubject(w.ctx, k.Timer())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	due := must(pipeline.DecodeDue(k, m.Data))
	at := must(time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at ")))
	return &timer{Due: due, at: at, header: m.Header}
}

// waiting returns the keys that have a pending timer.
func (w *world) waiting(keys []pipeline.Key) (waiting []pipeline.Key) {
	GinkgoHelper()
	for _, k := range keys {
		if w.timerOf(k) != nil {
			waiting = append(waiting, k)
		}
	}
	return waiting
}

func (w *world) timer() *timer { GinkgoHelper(); return w.timerOf(key) }

// messages returns the messages of a stream by sequence.
func (w *world) messages(name string) (all []*jetstream.RawStreamMsg) {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, name))
	state := stream.CachedInfo().State
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(w.ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		all = append(all, m)
	}
	return all
}

// contents returns the number of published bodies.
func (w *world) contents() int {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, pipeline.Results))
	info := must(stream.Info(w.ctx, jetstream.WithSubjectFilter("curl.result.content.>")))
	return len(info.State.Subjects)
}

// results returns the published results.
func (w *world) results() (all []*v1.Result) {
	GinkgoHelper()
	for _, m := range w.messages(pipeline.Results) {
		_, k, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, must(pipeline.DecodeResult(k, m.Data)))
	}
	return all
}

// result returns the only published result.
func (w *world) result() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// lastResult returns the newest result.
func (w *world) lastResult() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).NotTo(BeEmpty())
	return all[len(all)-1]
}

func (w *world) deadLetters() (all []*v1.DeadLetter) {
	GinkgoHelper()
	for _, m := range w.messages(pipeline.Failures) {
		d := new(v1.DeadLetter)
		Expect(proto.Unmarshal(m.Data, d)).To(Succeed())
		all = append(all, d)
	}
	return all
}

// deadLetter returns the only dead letter.
func (w *world) deadLetter() *v1.DeadLetter {
	GinkgoHelper()
	all := w.deadLetters()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// pending returns the number of undelivered and unacknowledged messages.
func (w *world) pending() uint64 {
	GinkgoHelper()
	consumer := must(w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer))
	info := must(consumer.Info(w.ctx))
	return info.NumPending + uint64(info.NumAckPending)
}

var _ = Describe("A key that failed under other settings", func() {
	const keys = 5
	var (
		w   *world
		old *fetcher
		o   *origin
	)
	denying := func(o *fetcherOptions) { o.egress = egress.Config{} }
	BeforeEach(func() {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
		old = w.fetcher(denying)
		o = serve(says("hello there"))
	})
	denied := func(namespace string, change ...func(*v1.Want)) (all []pipeline.Key) {
		GinkgoHelper()
		all = w.publishMany(o, keys, namespace, change...)
		for _, k := range all {
			old.step()
			Expect(w.timerOf(k).GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED))
			Expect(w.timerOf(k).at.Sub(w.clock.Now())).To(BeNumerically(">", 10*time.Minute))
		}
		return all
	}
	pauses := func(all []pipeline.Key) (found []time.Duration) {
		for _, k := range all {
			found = append(found, w.timerOf(k).at.Sub(w.clock.Now()))
		}
		return found
	}

	It("is tried again within a minute, paced by namespace, once by all fetchers", func() {
		a, b := denied("a"), denied("b", every(time.Hour))
		var resumed [3]int
		var group sync.WaitGroup
		for i := range resumed {
			f := w.fetcher()
			group.Go(func() { defer GinkgoRecover(); resumed[i] = must(f.Resume(w.ctx)) })
		}
		group.Wait()
		Expect(resumed[0]+resumed[1]+resumed[2]).To(Equal(2*keys), "the first one sets the timer")
		for _, pause := range append(pauses(a), pauses(b)...) {
			Expect(pause).To(BeNumerically("<", keys*40*time.Millisecond))
			Expect(pause%(40*time.Millisecond)).To(BeZero(), "each key has its own time")
		}

		f := w.fetcher()
		w.fire(w.timerOf(a[0]).Due)
		f.step()
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
		Expect(must(f.Resume(w.ctx))).To(BeZero())
	})

	It("is left to its timer if the settings are the same, or fail it again", func() {
		all := denied("a")
		Expect(must(w.fetcher(denying).Resume(w.ctx))).To(BeZero(), "another fetcher with the same policy")
		other := w.fetcher(func(o *fetcherOptions) { o.egress = egress.Config{AllowCIDRs: []string{"10.0.0.0/8"}} })
		Expect(must(other.Resume(w.ctx))).To(Equal(keys))
		for _, k := range all {
			w.fire(w.timerOf(k).Due)
			other.step()
		}
		Expect(must(other.Resume(w.ctx))).To(BeZero())
		Expect(pauses(all)).To(HaveEach(BeNumerically(">", 10*time.Minute)))
	})

	DescribeTable("is tried again after a change of its credentials if the server responds with",
		func(respond http.HandlerFunc, want int) {
			w.fetcher().fetch(w.want(serve(respond).URL))
			resumed := func(entry string) int {
				headers := writeFile("headers.yaml", []byte("- {host: 127.0.0.1, headers: {Authorization: s3cret}, "+entry+"}"))
				return must(w.fetcher(func(o *fetcherOptions) { o.get.HeaderFile = headers }).Resume(w.ctx))
			}
			Expect(resumed("namespaces: [b]")).To(BeZero(), "the credentials of another namespace")
			Expect(resumed("namespaces: [default], schemes: [http]")).To(Equal(want))
		},
		Entry("401", fails(http.StatusUnauthorized), 1),
		Entry("403", fails(http.StatusForbidden), 1),
		Entry("404", fails(http.StatusNotFound), 1),
		Entry("410", fails(http.StatusGone), 0),
		Entry("403 and Retry-After", retryLater(http.StatusForbidden, "1800"), 0),
	)

	It("is tried again after a change of the authorities if TLS failed", func() {
		server := httptest.NewTLSServer(says("hello there"))
		DeferCleanup(server.Close)
		once := func(o *fetcherOptions) { o.config.MaxAttempts = 1 }
		w.fetcher(once).fetch(w.want(server.URL))
		Expect(w.timer().GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_TLS_FAILED))
		bundle := writeFile("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		f := w.fetcher(once, func(o *fetcherOptions) { o.get.CABundle = bundle })
		Expect(must(f.Resume(w.ctx))).To(Equal(1))
		w.fire(w.timer().Due)
		f.step()
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
	})
})

var _ = Describe("A failed attempt", func() {
	var (
		w *world
		f *fetcher
	)
	BeforeEach(func() {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
		f = w.fetcher()
	})

	failures := func() (all []*v1.Failure) {
		for _, r := range w.results() {
			all = append(all, r.GetFailure())
		}
		return all
	}

	It("leaves a dead letter, a published failure and the timer of a recheck if it was the last", func() {
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
		reason, host, k, err := pipeline.ParseDeadLetter(w.messages(pipeline.Failures)[0].Subject)
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{reason, host, k}).To(Equal([]any{"BadStatus", pipeline.HiddenHost, key}))
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetGaveUp()).To(BeTrue())
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_RECHECK))
		Expect(t.GetAttempts()).To(BeZero())
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		Expect(t.at.Sub(w.clock.Now())).To(Equal(time.Hour))
		Eventually(w.pending).Should(BeZero())
	})

	It("delays nothing if the stream refuses its dead letter", func() {
		Expect(w.js.DeleteStream(w.ctx, pipeline.Failures)).To(Succeed())
		bad, good := serve(fails(http.StatusNotFound)), serve(says("hello there"))
		f.run()
		w.publishMany(bad, 100, "bad")
		w.publishMany(good, 5, "good")
		Eventually(good.gets.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		Eventually(func() float64 { return f.metric("curlmethat_fetcher_dead_letters_dropped_total", "") }).
			Should(BeEquivalentTo(100))
		Eventually(w.pending).Should(BeZero())
	})

	It("is logged with host, reason and status, without secrets", func() {
		var log bytes.Buffer
		f = w.fetcher(func(o *fetcherOptions) { o.log = &log })
		o := serve(fails(http.StatusForbidden))
		f.fetch(w.want(strings.Replace(o.URL, "127.0.0.1", "localhost", 1) + "/path?token=hidden"))
		Expect(strings.Count(log.String(), "\n")).To(Equal(1))
		f.fetch(w.want(o.URL + "/path?token=hidden"))
		line := log.String()
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

	Describe("with Retry-After", func() {
		It("pauses its host for a short time, and no other host", func() {
			slow := serve(retryLater(http.StatusTooManyRequests, "120"))
			f.fetch(w.want(slow.URL))
			gets := slow.gets.Load()

			f.fetch(w.want(slow.URL + "/another"))
			t := w.timer()
			Expect(slow.gets.Load()).To(Equal(gets), "no GET during the pause")
			Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
			Expect(t.GetAttempts()).To(BeZero(), "no attempt was made")
			Expect(t.GetStatusCode()).To(BeZero(), "no attempt was made")
			Expect(t.GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
			Expect(t.at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute), "only the URL waits as requested")

			f.fetch(w.want(serve(says("hello there")).URL, named("other", 0)))
			results := w.results()
			Expect(results[len(results)-1].GetContent()).NotTo(BeNil())

			Eventually(slow.gets.Load).Should(Equal(gets + 1))
		})

		It("does not pause a host that only redirects to the failing one", func() {
			slow := serve(retryLater(http.StatusTooManyRequests, "3600"))
			redirects := serve(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/fine" {
					says("hello there")(w, r)
					return
				}
				http.Redirect(w, r, slow.URL, http.StatusFound)
			})
			f.fetch(w.want(redirects.URL + "/elsewhere"))
			Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour),
				"the URL waits as requested")

			f.fetch(w.want(redirects.URL+"/fine", named("other", 0)))
			Expect(w.contents()).To(Equal(1))
		})

		It("does not delay one fetch that a person requests", func() {
			slow := serve(retryLater(http.StatusTooManyRequests, "3600"))
			f.fetch(w.want(slow.URL))
			now := func(w *v1.Want) { w.Cause, w.Now = v1.Cause_CAUSE_NOW, "now" }
			f.fetch(w.want(slow.URL+"/another", now))
			Expect(slow.gets.Load()).To(BeEquivalentTo(2))
			Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
			Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour))

			waiting := w.want(slow.URL + "/third")
			sequence := f.fetch(waiting)
			Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
			Expect(slow.gets.Load()).To(BeEquivalentTo(2))
			_, err := w.client.PublishDue(w.ctx, &v1.Due{Want: waiting, WantSequence: sequence, Cause: v1.Cause_CAUSE_NOW},
				"refetch")
			Expect(err).NotTo(HaveOccurred())
			f.step()
			Expect(slow.gets.Load()).To(BeEquivalentTo(3), "curlctl refetch does not wait")
		})
	})
})

const aURL = "https://data.example.com/a"

func TestRefreshComesOncePerInterval(t *testing.T) {
	const interval = 10 * time.Minute
	for _, jitter := range []float64{0, 0.05, 0.25} {
		r := engine.Refresh{Min: time.Second, Jitter: jitter}
		at := r.Next(time.Unix(1_800_000_000, 0), aURL, interval)
		for range 1000 {
			// The timer fires a little late, and the GET takes a while.
			next := r.After(at.Add(12*time.Second), aURL, interval)
			tolerance := time.Duration(float64(interval) * jitter)
			if gap := next.Sub(at); gap < interval-tolerance || gap > interval+tolerance {
				t.Fatalf("jitter %v: refresh after %s instead of %s", jitter, gap, interval)
			}
			at = next
		}
	}
}

func TestNoRefreshComesLaterThanTheIntervalAndItsJitter(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		for _, jitter := range []float64{0, 0.05, 0.25} {
			r := engine.Refresh{Min: time.Second, Jitter: jitter}
			limit := interval + time.Duration(float64(interval)*jitter)
			for i := range 1000 {
				now := time.Unix(1_800_000_000+int64(i)*17, int64(i)*1_234_567)
				pending := r.Next(now, aURL, interval)
				if gap := pending.Sub(now); gap <= 0 || gap > limit {
					t.Fatalf("%s, jitter %v: next slot after %s", interval, jitter, gap)
				}
				after := r.After(now, aURL, interval)
				if gap := after.Sub(now); gap < interval/4 || gap > limit {
					t.Fatalf("%s, jitter %v: refresh after %s", interval, jitter, gap)
				}
				// A want that is published again does not delay the slot.
				again := now.Add(pending.Sub(now) * time.Duration(i) / 1000)
				if next := r.Next(again, aURL, interval); !next.Equal(pending) {
					t.Fatalf("%s, jitter %v: the slot moved from %s to %s", interval, jitter, pending, next)
				}
			}
		}
	}
}

func TestALateFetchReturnsToTheSlotsOfItsURL(t *testing.T) {
	const interval = time.Minute
	r := engine.Refresh{Min: time.Second, Jitter: 0.05}
	slot := r.Next(time.Unix(1_800_000_000, 0), aURL, interval)
	at := r.After(slot.Add(50*time.Second), aURL, interval)
	for range 2 {
		at = r.After(at.Add(time.Second), aURL, interval)
	}
	if want := r.Next(at.Add(-time.Second), aURL, interval); !at.Equal(want) {
		t.Errorf("refresh at %s instead of %s", at, want)
	}
}

func TestObjectsWithTheSameURLAreFetchedTogether(t *testing.T) {
	r := engine.Refresh{Min: time.Second, Jitter: 0.05}
	now := time.Unix(1_800_000_000, 0)
	times := map[time.Time]int{}
	for i := range 100 { // fetched at different moments of one minute
		times[r.After(now.Add(time.Duration(i)*600*time.Millisecond), aURL, 10*time.Minute)]++
	}
	if len(times) > 2 {
		t.Errorf("objects are fetched at %d different times", len(times))
	}
}

func TestDifferentURLsSpreadOverTheInterval(t *testing.T) {
	const interval, parts, each = 10 * time.Minute, 10, 200
	r := engine.Refresh{Min: time.Second}
	now := time.Unix(1_800_000_000, 0)
	var count [parts]int
	for i := range parts * each {
		aURL := fmt.Sprintf("https://data.example.com/%d", i)
		at := r.After(r.After(now, aURL, interval), aURL, interval)
		count[at.UnixNano()%int64(interval)*parts/int64(interval)]++
	}
	for part, n := range count {
		if n < each/2 || n > 2*each {
			t.Errorf("part %d of the interval has %d of %d URLs", part, n, parts*each)
		}
	}
}

func TestAnIntervalBelowTheMinimumIsRaised(t *testing.T) {
	r, now := engine.Refresh{Min: time.Minute}, time.Unix(1_800_000_000, 0)
	if got, want := r.After(now, aURL, time.Second), r.After(now, aURL, time.Minute); !got.Equal(want) {
		t.Errorf("After() = %s, want %s", got, want)
	}
}
