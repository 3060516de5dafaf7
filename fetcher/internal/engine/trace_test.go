package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/signature"
)

var _ = Describe("A trace", func() {
	const published = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var (
		w     *world
		f     *fetcher
		spans *tracetest.InMemoryExporter
		log   *bytes.Buffer
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
		spans, log = tracetest.NewInMemoryExporter(), new(bytes.Buffer)
		tracer := tracing.New(ctx, "fetcher", "", sdktrace.NewSimpleSpanProcessor(spans))
		f = w.fetcher(func(o *fetcherOptions) { o.tracer, o.log, o.config.Sharing.Window = tracer, log, 0 })
	})

	// fetch publishes a want like a watcher with tracing, and makes the fetcher handle it.
	fetch := func(want *v1.Want) uint64 {
		GinkgoHelper()
		before := w.ctx
		w.ctx = trace.ContextWithSpanContext(w.ctx, pipeline.ParseTraceparent(published))
		sequence := w.publish(want)
		w.ctx = before
		f.step()
		return sequence
	}
	It("continues at a retry, is in the dead letter, and ends with the round", func() {
		o := serve(fails(http.StatusServiceUnavailable))
		fetch(w.want(o.URL+"/page?token=s3cret", every(time.Minute)))
		o.now(says("hello there"))
		f.elapse()
		o.now(fails(http.StatusNotFound))
		f.elapse()

		all := spans.GetSpans()
		Expect(all).To(HaveLen(3))
		first, second, third := all[0], all[1], all[2]
		Expect(first.SpanKind).To(Equal(trace.SpanKindConsumer))
		Expect(pipeline.Traceparent(first.Parent)).To(Equal(published))
		Expect(first.Status.Description).To(Equal("BadStatus"))
		Expect(second.Parent.SpanID()).To(Equal(first.SpanContext.SpanID()))
		Expect(second.Attributes).To(ContainElements(
			tracing.Outcome.String("content"), tracing.Attempt.Int64(2), attribute.Int("http.response.status_code", 200),
			attribute.String("url.path", "/page"), attribute.String("server.address", "(address)"),
		))
		Expect(third.Parent.IsValid()).To(BeFalse(), "a refresh is another trace")
		Expect(third.SpanContext.TraceID()).NotTo(Equal(first.SpanContext.TraceID()))
		Expect(w.deadLetter().GetTraceparent()).To(Equal(pipeline.Traceparent(third.SpanContext)))
		var events []string
		for _, e := range first.Events {
			events = append(events, e.Name)
		}
		Expect(events).To(ContainElements("connect", "first_byte", "total"))
		Expect(fmt.Sprint(all)).NotTo(Or(ContainSubstring("s3cret"), ContainSubstring("127.0.0.1"),
			ContainSubstring("secret of the server")))
		Expect(log.String()).To(ContainSubstring(`"trace_id":"0af7651916cd43dd8448eb211c80319c"`))
		Expect(w.messages(pipeline.Results)[0].Header.Get("traceparent")).To(Equal(pipeline.Traceparent(second.SpanContext)))
	})

	It("is passed on, but not started, without tracing", func() {
		f = w.fetcher()
		o := serve(says("hello there"))
		f.fetch(w.want(o.URL))
		Expect(w.messages(pipeline.Results)[0].Header).NotTo(HaveKey("traceparent"))
		fetch(w.want(o.URL+"/other", every(time.Minute)))
		Expect(w.messages(pipeline.Results)[1].Header.Get("traceparent")).To(Equal(published))
		Expect(w.timer().header).NotTo(HaveKey("traceparent"), "a refresh is another round")
		Expect(spans.GetSpans()).To(BeEmpty())
	})
})

var _ = Describe("A message", func() {
	var (
		w *world
		f *fetcher
		o *origin
	)
	BeforeEach(func() {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
		f = w.fetcher()
		o = serve(says("hello there"))
	})

	DescribeTable("becomes a dead letter if it cannot be decoded, and does not delay others",
		func(subject string, data string, named pipeline.Key) {
			Expect(w.js.Publish(w.ctx, subject, []byte(data))).Error().NotTo(HaveOccurred())
			w.publish(w.want(o.URL))

			f.step()
			deadLetter := w.deadLetter()
			Expect(deadLetter.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_MALFORMED))
			Expect(deadLetter.GetSubject()).To(Equal(subject))
			Expect(deadLetter.GetPayload()).To(BeEquivalentTo(data))
			reason, _, k, err := pipeline.ParseDeadLetter(w.messages(pipeline.Failures)[0].Subject)
			Expect(err).NotTo(HaveOccurred())
			Expect(reason).To(Equal("Malformed"))
			Expect(k).To(Equal(named))

			f.step()
			Expect(w.result().GetContent()).NotTo(BeNil())
			Eventually(w.pending).Should(BeZero())
		},
		Entry("payload of a want", natstest.Numbered(1).Want(), "garbage", natstest.Numbered(1)),
		Entry("payload of a due", natstest.Numbered(1).Due(), "\xff\xff", natstest.Numbered(1)),
		Entry("empty due", natstest.Numbered(1).Due(), "", natstest.Numbered(1)),
		Entry("subject with too few tokens", "curl.want.x", "garbage", pipeline.Key{}),
		Entry("subject with a broken escape", "curl.want.ns.na%2me.key", "", pipeline.Key{}),
	)

	It("is acknowledged if it is a tombstone", func() {
		Expect(w.client.PublishTombstone(w.ctx, key, 0)).Error().NotTo(HaveOccurred())
		f.step()
		Eventually(w.pending).Should(BeZero(), "the server handles acknowledgements asynchronously")
		Expect(w.results()).To(BeEmpty())
	})

	Describe("that is due", func() {
		var (
			want     *v1.Want
			sequence uint64
		)
		BeforeEach(func() {
			want = w.want(o.URL)
			sequence = w.publish(want)
			Expect(w.next().Ack()).To(Succeed())
		})

		nothingHappens := func() {
			GinkgoHelper()
			f.step()
			Expect(o.gets.Load()).To(BeZero())
			Expect(w.results()).To(BeEmpty())
			Expect(w.timer()).To(BeNil())
		}

		DescribeTable("is acknowledged if its want was", func(change func() error) {
			Expect(change()).To(Succeed())
			Expect(w.next().Ack()).To(Succeed())
			w.fire(&v1.Due{Want: want, WantSequence: sequence})
			nothingHappens()
			Eventually(w.pending).Should(BeZero())
		},
			Entry("replaced", func() error { w.publish(w.want(o.URL + "/newer")); return nil }),
			Entry("removed", func() error { _, err := w.client.PublishTombstone(w.ctx, key, sequence); return err }),
		)

		It("is acknowledged after three lookups if its key has no want", func() {
			stranger := w.want(o.URL, func(w *v1.Want) { w.Name = "stranger" })
			w.fire(&v1.Due{Want: stranger, WantSequence: sequence})
			for range 3 {
				Eventually(w.pending).Should(BeEquivalentTo(1))
				nothingHappens()
			}
			Eventually(w.pending).Should(BeZero())
		})

		It("is given back until the replica has its want", func() {
			w.fire(&v1.Due{Want: want, WantSequence: sequence})
			catchUp := w.replicaLags()
			nothingHappens()
			catchUp()
			f.step()
			Eventually(w.contents).Should(Equal(1))
			Eventually(w.pending).Should(BeZero())
		})

		It("is given back if it belongs to a newer want than the replica's", func() {
			w.fire(&v1.Due{Want: want, WantSequence: sequence + 100})
			nothingHappens()
			Eventually(w.pending).Should(BeEquivalentTo(1))
			m := w.next()
			Expect(must(m.Metadata()).NumDelivered).To(BeEquivalentTo(2))
			Expect(m.Ack()).To(Succeed())
		})

		It("uses the current want, not the one in the timer", func() {
			remembered := w.want(o.URL + "/remembered")
			w.fire(&v1.Due{Want: remembered, WantSequence: sequence})
			f.step()
			Expect(w.result().GetWant().GetUrl()).To(Equal(o.URL))
		})
	})

	Describe("for a key that already has its body", func() {
		settled := func(w *v1.Want) { w.Cached = &v1.Cached{Sha256: digest("hello there"), Etag: `"v1"`} }

		It("only sets the timer of the refresh", func() {
			sequence := f.fetch(w.want(o.URL, settled, every(10*time.Minute)))
			Expect(o.gets.Load()).To(BeZero())
			Expect(w.results()).To(BeEmpty())
			t := w.timer()
			Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
			Expect(t.GetWantSequence()).To(Equal(sequence))
			Expect(t.GetCached().GetEtag()).To(Equal(`"v1"`))
			Eventually(w.pending).Should(BeZero())

			w.fire(t.Due)
			f.step()
			Expect(o.gets.Load()).To(BeEquivalentTo(1), "a due always fetches")
		})
	})
})

func expects(rules ...string) func(*v1.Want) { return func(w *v1.Want) { w.Expect = rules } }

func selects(text string) func(*v1.Want) { return func(w *v1.Want) { w.Select = text } }

var _ = Describe("A want with rules", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("publishes the selected part of a body, and nothing while that stays the same", func() {
		o, f := serve(says(`{"at":1,"data":{"limits":[1]}}`)), w.fetcher()
		want := w.want(o.URL, every(10*time.Minute), selects("json.data.limits"))
		f.fetch(want)
		Expect(string(w.lastResult().GetContent().GetBody())).To(Equal("[1]"))
		Expect(w.lastResult().GetContent().GetSha256()).To(Equal(digest("[1]")))
		Expect(w.lastResult().GetContent().GetRules()).To(Equal(rule.Of(want).Digest()))
		results := len(w.results())
		o.now(says(`{"at":2,"data":{"limits":[1]}}`))
		f.elapse()
		Expect(w.results()).To(HaveLen(results))
		o.now(says(`{"at":2}`))
		f.elapse()
		Expect(w.lastResult().GetFailure().GetRule()).To(BeZero())
		Expect(w.lastResult().GetFailure().GetDetail()).To(Equal(v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE))
	})

	It("requests a body again that may no longer pass", func() {
		o, f := serve(tagged(`"a"`, "good")), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), expects(`now < timestamp("`+
			w.clock.Now().Add(time.Minute).UTC().Format(time.RFC3339)+`")`)))
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
		f.elapse()
		Expect(w.lastResult().GetFailure().GetRule()).To(BeEquivalentTo(1))
	})

	It("keeps a body that a 304 confirms", func() {
		o, f := serve(tagged(`"a"`, "good")), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), expects(`body == "good"`)))
		f.elapse()
		Expect(w.timer().GetCached().GetSize()).To(BeEquivalentTo(4))
		Expect(w.lastResult().GetFailure()).To(BeNil())
	})
})

var _ = Describe("Credentials", func() {
	const secret = "Bearer of the namespace"
	var (
		w      *world
		f      *fetcher
		o      *origin
		signer *signature.Signer
		mu     sync.Mutex
		seen   []string
	)
	BeforeEach(func() {
		w, seen = newWorld(natstest.Options{}, pipeline.Topology{}), nil
		o = serve(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, r.URL.Path+" "+r.Header.Get("Authorization"))
			if r.URL.Path == "/moved" {
				http.Redirect(w, r, "/private/moved", http.StatusFound)
				return
			}
			if strings.HasSuffix(r.URL.Path, "/denied") {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, "hello there")
		})
		seed, keys, err := signature.WriteFiles(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		signer = must(signature.LoadSigner(seed))
		at := must(url.Parse(o.URL))
		headers := writeFile("headers.yaml", fmt.Appendf(nil,
			"- {host: %s, ports: [%s], schemes: [http], pathPrefix: /private, namespaces: [%s], headers: {Authorization: %s}}",
			at.Hostname(), at.Port(), key.Namespace, secret))
		f = w.fetcher(func(o *fetcherOptions) {
			o.get.HeaderFile = headers
			o.signatures = must(signature.LoadVerifier(keys))
		})
	})
	sent := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
	signed := func(path string, change ...func(*v1.Want)) *v1.Want {
		want := w.want(o.URL+path, change...)
		signer.Sign(want)
		return want
	}
	refused := func(want *v1.Want) uint64 {
		GinkgoHelper()
		sequence := f.fetch(want)
		failure := w.result().GetFailure()
		Expect(failure.GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED))
		Expect(failure.GetDetail()).To(Equal(v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS))
		Expect(failure.GetNextAt()).To(BeNil(), "the watcher publishes the want again before the next fetch")
		Expect(w.timer().Due).To(And(
			HaveField("Reported", v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED),
			HaveField("Detail", v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS)), "for curlctl and the audit")
		Expect(w.deadLetters()).To(HaveLen(1))
		Eventually(w.pending).Should(BeZero())
		return sequence
	}

	It("are sent at the refresh of a signed want, and the writer reads the object first", func() {
		f.fetchDue(signed("/private/a", every(10*time.Minute)), &v1.Due{Cause: v1.Cause_CAUSE_REFRESH})
		Expect(sent()).To(Equal([]string{"/private/a " + secret}))
		Expect(w.result().GetWant().GetReadFirst()).To(BeTrue())
		Expect(w.result().GetWant().GetStatus()).To(BeEmpty())
	})

	It("are not sent for a want of another publisher, which is reported", func() {
		want := signed("/private/a", every(10*time.Minute))
		want.Url = o.URL + "/private/b"
		refused(want)
		Expect(sent()).To(BeEmpty())
	})

	It("are checked once per interval without a request while the want is not signed", func() {
		sequence := refused(w.want(o.URL+"/private/a", every(10*time.Minute)))
		reports := len(w.results())
		for range 4 { // the first refresh comes after half an interval to one and a half
			Expect(w.timer().at).To(BeTemporally(">", w.clock.Now().Add(4*time.Minute)))
			f.elapse()
			Eventually(w.pending).Should(BeZero())
			Expect(w.timer().Due).To(And(HaveField("WantSequence", sequence),
				HaveField("Detail", v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS)))
		}
		Expect(w.results()).To(HaveLen(reports+1), "one more after three intervals")
		Expect(sent()).To(BeEmpty())
		By("sending them once it is signed")
		f.fetch(signed("/private/a", every(10*time.Minute)))
		Expect(sent()).To(Equal([]string{"/private/a " + secret}))
		Expect(w.timer().Due).To(And(HaveField("Reported", v1.FailureClass_FAILURE_CLASS_UNSPECIFIED),
			HaveField("Detail", v1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED)))
	})

	It("are not needed for an unsigned want of a public URL", func() {
		f.fetch(w.want(o.URL + "/public"))
		Expect(w.result().GetContent()).NotTo(BeNil())
		Expect(sent()).To(Equal([]string{"/public "}))
	})

	It("are never in a GET that a signed and an unsigned want share", func() {
		f.fetch(signed("/moved"))
		forged := w.want(o.URL+"/moved", func(w *v1.Want) { w.Name = "another" })
		f.fetch(forged)
		Expect(sent()).To(Equal([]string{"/moved ", "/private/moved " + secret, "/moved "}))
	})

	It("are named by their source if refused, and appear in no message", func() {
		f.fetch(signed("/private/denied"))
		Expect(w.result().GetFailure().GetCredential()).To(Equal("entry 1 of the header file"))
		Expect(w.deadLetters()).To(HaveLen(1))
		searched := 0
		for _, stream := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures} {
			for _, m := range w.messages(stream) {
				Expect(string(m.Data)+fmt.Sprint(m.Header)).NotTo(ContainSubstring(secret), m.Subject)
				searched++
			}
		}
		Expect(searched).To(BeNumerically(">=", 3))
	})
})
