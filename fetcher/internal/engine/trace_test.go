package engine_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	last := func() tracetest.SpanStub {
		all := spans.GetSpans()
		Expect(all).NotTo(BeEmpty())
		return all[len(all)-1]
	}

	It("continues at a retry, which links to the attempt before", func() {
		o := serve(fails(http.StatusServiceUnavailable))
		fetch(w.want(o.URL + "/page?token=s3cret"))
		o.now(says("hello there"))
		f.elapse()

		all := spans.GetSpans()
		Expect(all).To(HaveLen(2))
		first, second := all[0], all[1]
		for _, span := range all {
			Expect(span.SpanKind).To(Equal(trace.SpanKindConsumer))
			Expect(pipeline.Traceparent(span.Parent)).To(Equal(published))
		}
		Expect(first.Links).To(BeEmpty())
		Expect(first.Status.Description).To(Equal("BadStatus"))
		Expect(second.Links).To(HaveLen(1))
		Expect(second.Links[0].SpanContext.SpanID()).To(Equal(first.SpanContext.SpanID()))
		Expect(second.Links[0].Attributes).To(ConsistOf(tracing.Link.String(tracing.EarlierAttempt)))
		Expect(second.Attributes).To(ContainElements(
			tracing.Outcome.String("content"), tracing.Attempt.Int64(2), attribute.Int("http.response.status_code", 200),
			attribute.String("url.path", "/page"), attribute.String("server.address", "(address)"),
		))
		var events []string
		for _, e := range first.Events {
			events = append(events, e.Name)
		}
		Expect(events).To(ContainElements("connect.start", "connect.done", "request.written", "first_byte"))
		Expect(fmt.Sprint(all)).NotTo(Or(ContainSubstring("s3cret"), ContainSubstring("127.0.0.1"),
			ContainSubstring("secret of the server")))
		Expect(log.String()).To(ContainSubstring(`"trace_id":"0af7651916cd43dd8448eb211c80319c"`))
		results := w.messages(pipeline.Results)
		Expect(results[len(results)-1].Header.Get("traceparent")).To(Equal(pipeline.Traceparent(second.SpanContext)))
	})

	It("separates a handshake from a connect", func() {
		o := httptest.NewTLSServer(says("hello there")) // its certificate is not trusted
		DeferCleanup(o.Close)
		fetch(w.want(o.URL))
		Expect(last().Events).To(ContainElement(HaveField("Name", "tls.done")))
	})

	It("ends with the round, and a refresh starts another one with a link", func() {
		o := serve(says("hello there"))
		fetch(w.want(o.URL, every(time.Minute)))
		f.elapse()
		all := spans.GetSpans()
		Expect(all).To(HaveLen(2))
		Expect(all[1].Parent.IsValid()).To(BeFalse())
		Expect(all[1].SpanContext.TraceID()).NotTo(Equal(all[0].SpanContext.TraceID()))
		Expect(all[1].Links).To(HaveLen(1))
		Expect(all[1].Links[0].SpanContext.SpanID()).To(Equal(all[0].SpanContext.SpanID()))
	})

	It("counts the deliveries of a message", func() {
		o := serve(says("hello there"))
		w.publish(w.want(o.URL))
		m := w.next()
		f.handle(unacknowledged{m}) // the process ends before it acknowledges
		Expect(m.Nak()).To(Succeed())
		w.clock.Advance(time.Second) // the outcome is no longer shared
		f.step()
		all := spans.GetSpans()
		Expect(all).To(HaveLen(2))
		Expect(all[0].Attributes).To(ContainElement(tracing.Delivery.Int64(1)))
		Expect(all[1].Attributes).To(ContainElement(tracing.Delivery.Int64(2)))
	})

	It("is in the dead letter, to which the span of a replay links", func() {
		o := serve(fails(http.StatusNotFound))
		want := w.want(o.URL)
		sequence := fetch(want)
		deadLetter := w.deadLetters()[0]
		Expect(deadLetter.GetTraceparent()).To(Equal(pipeline.Traceparent(last().SpanContext)))
		Expect(deadLetter.GetTraceparent()).To(ContainSubstring("0af7651916cd43dd8448eb211c80319c"))

		w.clock.Advance(time.Second) // the outcome is no longer shared
		w.fire(&v1.Due{
			Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REPLAY, ReplayOf: 1, Earlier: deadLetter.GetTraceparent(),
		})
		f.step()
		replay := last()
		Expect(replay.Parent.IsValid()).To(BeFalse())
		Expect(replay.Links).To(HaveLen(1))
		Expect(pipeline.Traceparent(replay.Links[0].SpanContext)).To(Equal(deadLetter.GetTraceparent()))
		Expect(replay.Links[0].Attributes).To(ConsistOf(tracing.Link.String(tracing.ReplayedFailure)))
	})

	It("links messages with a shared GET to the one that made it", func() {
		o, _, release := held("hello there")
		tracer := f.tracer
		f = w.fetcher(func(o *fetcherOptions) { o.tracer, o.config.Sharing.JoinWithin = tracer, 10*time.Second })
		for i := range 3 {
			w.publish(w.want(o.URL, named("cm", i)))
		}
		f.run()
		Eventually(f.inFlight).Should(BeEquivalentTo(3))
		close(release)
		Eventually(spans.GetSpans).Should(HaveLen(3))
		var leader trace.SpanID
		for _, span := range spans.GetSpans() {
			if len(span.Links) == 0 {
				leader = span.SpanContext.SpanID()
				Expect(span.Events).NotTo(BeEmpty())
			}
		}
		for _, span := range spans.GetSpans() {
			if span.SpanContext.SpanID() != leader {
				Expect(span.Links).To(HaveLen(1))
				Expect(span.Links[0].SpanContext.SpanID()).To(Equal(leader))
				Expect(span.Events).To(BeEmpty())
			}
		}
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
