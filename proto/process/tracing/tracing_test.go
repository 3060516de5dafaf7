package tracing_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = pipeline.Key{Namespace: "default", Name: "cool.map", Key: "my.data"}

// collector is an OTLP receiver that records spans.
type collector struct {
	*httptest.Server

	refuse  atomic.Bool
	mu      sync.Mutex
	batches []*tracepb.TracesData
	headers []http.Header
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := new(collector)
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() {
		c.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	raw, _ := io.ReadAll(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	data := new(tracepb.TracesData) // an export request has the same form
	if c.refuse.Load() || r.URL.Path != "/v1/traces" || proto.Unmarshal(raw, data) != nil {
		http.Error(w, "secret of the server", http.StatusBadRequest)
		return
	}
	c.batches = append(c.batches, data)
	c.headers = append(c.headers, r.Header)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// fromEnv returns a tracer configured only by these variables, and its log.
func fromEnv(t *testing.T, env map[string]string) (*tracing.Tracer, *bytes.Buffer) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_HEADERS",
		"OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Setenv(name, "")
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	log := new(bytes.Buffer)
	return tracing.FromEnv(t.Context(), "fetcher", "1.2.3", zerolog.New(log)), log
}

func TestFromEnvSendsSpansAsConfigured(t *testing.T) {
	c := newCollector(t)
	tracer, _ := fromEnv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20token",
		"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
	})
	_, span := tracer.Publish(t.Context(), pipeline.KindWant, key)
	span.End()
	tracer.Shutdown(t.Context())

	if len(c.batches) != 1 {
		t.Fatalf("%d batches", len(c.batches))
	}
	if have := c.headers[0].Get("Authorization"); have != "Bearer token" {
		t.Errorf("Authorization is %q", have)
	}
	resource := c.batches[0].GetResourceSpans()[0]
	attributes := map[string]string{}
	for _, a := range resource.GetResource().GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for name, want := range map[string]string{
		"service.name": "mine", "service.namespace": "curl-me-that", "service.version": "1.2.3",
		"deployment.environment.name": "test",
	} {
		if attributes[name] != want {
			t.Errorf("%s is %q", name, attributes[name])
		}
	}
	sent := resource.GetScopeSpans()[0].GetSpans()[0]
	if sent.GetName() != "publish curl.want" || sent.GetKind() != tracepb.Span_SPAN_KIND_PRODUCER {
		t.Errorf("sent %v", sent)
	}
}

func TestFromEnvIsOff(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"without an endpoint": {"OTEL_TRACES_SAMPLER": "always_on"},
		"when disabled":       {"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
		"without an exporter": {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
	} {
		t.Run(name, func(t *testing.T) {
			tracer, log := fromEnv(t, env)
			if tracer != nil || log.Len() > 0 {
				t.Errorf("tracer %v, log %s", tracer, log)
			}
			tracer.Shutdown(t.Context())
		})
	}
}

func TestFromEnvLogsOneSentenceForEachMistake(t *testing.T) {
	for _, wrong := range []struct {
		name, value, sentence string
		off                   bool
	}{
		{
			"OTEL_EXPORTER_OTLP_ENDPOINT", "user:hidden@collector",
			"OTEL_EXPORTER_OTLP_ENDPOINT is not an address such as http://collector:4318, traces are off", true,
		},
		{"OTEL_TRACES_SAMPLER", "some", `configure traces by OTEL_*: unsupported sampler: some`, false},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": newCollector(t).URL}
			env[wrong.name] = wrong.value
			tracer, log := fromEnv(t, env)
			defer tracer.Shutdown(t.Context())
			if (tracer == nil) != wrong.off || !bytes.Contains(log.Bytes(), []byte(wrong.sentence)) ||
				bytes.Contains(log.Bytes(), []byte("hidden")) {
				t.Errorf("tracer %v, log %s", tracer, log)
			}
		})
	}
}

func TestAFailingCollectorIsLoggedOnceAndDelaysNothing(t *testing.T) {
	c := newCollector(t)
	c.refuse.Store(true)
	tracer, log := fromEnv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1", // every span is a batch
	})
	for range 20 {
		_, span := tracer.Publish(t.Context(), pipeline.KindWant, key)
		span.End()
	}
	tracer.Shutdown(t.Context())
	if n := bytes.Count(log.Bytes(), []byte("cannot send traces to the collector, continuing without them")); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	if bytes.Contains(log.Bytes(), []byte("secret of the server")) {
		t.Errorf("the log repeats the response of the collector: %s", log)
	}
}

// handle creates spans for a message like the services do.
func handle(ctx context.Context, tracer *tracing.Tracer, m tracing.Message) {
	ctx, span := tracer.Consume(ctx, "fetch", "fetcher", m)
	_, sent := tracer.Publish(ctx, pipeline.KindContent, key)
	tracing.Fail(span, "Timeout")
	_ = pipeline.Traceparent(span.SpanContext())
	sent.End()
	span.End()
}

func TestADisabledTracerAllocatesNothing(t *testing.T) {
	var tracer *tracing.Tracer
	ctx, m := t.Context(), tracing.Message{Kind: pipeline.KindWant, Key: key, Sequence: 7, Delivery: 1}
	if n := testing.AllocsPerRun(100, func() { handle(ctx, tracer, m) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
