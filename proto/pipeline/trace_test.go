package pipeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// traceparent of a sampled span, as in the examples of W3C Trace Context.
const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var _ = Describe("Trace context", func() {
	It("passes from a timer to its due", func(ctx SpecContext) {
		due := natstest.Due(GinkgoTB(), js, key)
		state := suitetest.Must(trace.ParseTraceState("vendor=opaque"))
		span := pipeline.ParseTraceparent(traceparent).WithTraceState(state)
		suitetest.Must(client.SetTimer(trace.ContextWithSpanContext(ctx, span), due, time.Now().Add(300*time.Millisecond)))
		header := fired(ctx, key).Header
		Expect(header).To(HaveKeyWithValue("traceparent", []string{traceparent}))
		Expect(header).To(HaveKeyWithValue("tracestate", []string{"vendor=opaque"}))
		Expect(trace.SpanContextFromContext(pipeline.ContextWithTrace(ctx, header)).TraceState()).To(Equal(state))
	})

	It("drops a long tracestate, which would take the room of the body", func(ctx SpecContext) {
		state := suitetest.Must(trace.ParseTraceState("a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("y", 250)))
		span := trace.ContextWithSpanContext(ctx, pipeline.ParseTraceparent(traceparent).WithTraceState(state))
		suitetest.Must(client.PublishWant(span, natstest.Want(key, "https://a.example"), 0))
		header := last(ctx, key.WantSubject()).Header
		Expect(header).To(HaveKey("traceparent"))
		Expect(header).NotTo(HaveKey("tracestate"))
	})
})

func TestTraceparentRoundTrip(t *testing.T) {
	if have := pipeline.Traceparent(pipeline.ParseTraceparent(traceparent)); have != traceparent {
		t.Errorf("have %q", have)
	}
	for _, text := range []string{
		"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		traceparent[:50],
	} {
		if span := pipeline.ParseTraceparent(text); span.IsValid() {
			t.Errorf("%q gives %v", text, span)
		}
	}
	if have := pipeline.Traceparent(trace.SpanContext{}); have != "" {
		t.Errorf("an invalid span context gives %q", have)
	}
}

func TestContextWithoutTraceCostsNothing(t *testing.T) {
	header := nats.Header{"Nats-Msg-Id": {"1"}, "Traceparent": {traceparent}} // the spelling of HTTP, not ours
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = pipeline.ContextWithTrace(ctx, header) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if trace.SpanContextFromContext(pipeline.ContextWithTrace(ctx, header)).IsValid() {
		t.Error("a header in another case was read")
	}
}
