package engine_test

import (
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

var _ = Describe("A trace", func() {
	const published = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var (
		f     *fetcher
		spans *tracetest.InMemoryExporter
	)
	BeforeEach(func(ctx SpecContext) {
		spans = tracetest.NewInMemoryExporter()
		tracer := tracing.New(ctx, "fetcher", "", sdktrace.NewSimpleSpanProcessor(spans))
		f = w.fetcher(func(o *fetcherOptions) { o.tracer, o.config.Sharing.Window = tracer, 0 })
	})

	// publish publishes a want like a watcher with tracing.
	publish := func(want *v1.Want) {
		GinkgoHelper()
		before := w.ctx
		state := suitetest.Must(trace.ParseTraceState("vendor=opaque"))
		w.ctx = trace.ContextWithSpanContext(w.ctx, pipeline.ParseTraceparent(published).WithTraceState(state))
		w.publish(want)
		w.ctx = before
	}
	It("continues at a retry, is in the dead letter, and ends with the round", func() {
		o := serve(fails(http.StatusServiceUnavailable))
		publish(w.want(o.URL+"/page?token=s3cret", every(time.Minute)))
		f.step()
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
		Expect(f.log.Contents()).To(ContainSubstring(`"trace_id":"0af7651916cd43dd8448eb211c80319c"`))
		Expect(w.messages(pipeline.Results)[0].Header.Get("traceparent")).To(Equal(pipeline.Traceparent(second.SpanContext)))
	})

	It("is passed on, but not started, without tracing", func() {
		f = w.fetcher()
		o := serve(says("hello there"))
		f.fetch(w.want(o.URL))
		Expect(w.messages(pipeline.Results)[0].Header).NotTo(HaveKey("traceparent"))
		publish(w.want(o.URL+"/other", every(time.Minute)))
		f.step()
		Expect(w.messages(pipeline.Results)[1].Header.Get("traceparent")).To(Equal(published))
		Expect(w.timer().header).NotTo(HaveKey("traceparent"), "a refresh is another round")
		Expect(spans.GetSpans()).To(BeEmpty())
	})

	It("stays with a queued key", func() {
		publish(w.want(serve(says("hello there")).URL))
		Expect(w.next().Nak()).To(Succeed()) // a message that is delivered again is queued
		w.fetcher().step()
		Eventually(w.contents).Should(Equal(1))
		Expect(w.messages(pipeline.Results)[0].Header).To(And(
			HaveKeyWithValue("traceparent", []string{published}), HaveKeyWithValue("tracestate", []string{"vendor=opaque"})))
	})
})
