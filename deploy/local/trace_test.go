package local_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// traced returns the services and messages of the log lines of a trace.
func traced(log *gbytes.Buffer, id string) (lines []string) {
	for text := range strings.Lines(string(log.Contents())) {
		var line struct {
			Service, Message string
			TraceID          string `json:"trace_id"`
		}
		if json.Unmarshal([]byte(text), &line) == nil && line.TraceID == id {
			lines = append(lines, line.Service+": "+line.Message)
		}
	}
	return lines
}

// secrets occur in URLs, responses and addresses, and must not occur in spans and log lines.
var secrets = []string{"s3cret", "passw0rd", "what the server says", "127.0.0.1"}

var _ = Describe("A request that fails once", func() {
	It("has one trace through the three services, without secrets in spans and log", func(ctx SpecContext) {
		cluster := kubernetes.NewForConfigOrDie(kubetest.Config(GinkgoTB()))
		namespace := kubetest.Namespace(ctx, GinkgoTB(), cluster, "traced-", nil)
		var gets atomic.Int32
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if gets.Add(1) == 1 {
				http.Error(w, "what the server says", http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte("hello there"))
		}))
		DeferCleanup(origin.Close)

		config, err := parse("--data-dir", "", "--namespaces", namespace, "--allow-cidr", "127.0.0.0/8,::1/128",
			"--log-level", "debug", "--log-format", "json")
		Expect(err).NotTo(HaveOccurred())
		config.Fetcher.Engine.Retry.Base, config.Fetcher.Engine.Sharing.Window = 300*time.Millisecond, 0
		spans, log := tracetest.NewInMemoryExporter(), gbytes.NewBuffer()
		config.Spans, config.Output = sdktrace.NewSimpleSpanProcessor(spans), log
		start(ctx, config)

		maps := cluster.CoreV1().ConfigMaps(namespace)
		for name, value := range map[string]string{
			"mine":    "mydata=" + origin.URL + "/page?token=s3cret#s3cret",
			"hostile": "mydata=" + strings.Replace(origin.URL, "http://", "http://user:passw0rd@", 1) + "/?token=s3cret",
			"nowhere": "mydata=http://nowhere.invalid/?token=s3cret",
		} {
			suitetest.Must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{"x-kv8s.io/curl-me-that": value},
			}}, metav1.CreateOptions{}))
		}
		applied := func() []tracetest.SpanStub { return named(spans.GetSpans(), "mine", "apply curl.result.content") }
		Eventually(applied).Should(HaveLen(1))

		apply := applied()[0]
		id := apply.SpanContext.TraceID()
		// The span of a fetch includes the acknowledgement, so it ends after the result is applied.
		Eventually(func() []tracetest.SpanStub { return named(ofTrace(spans.GetSpans(), id), "mine", "fetch curl.due") }).
			Should(HaveLen(1))
		all := ofTrace(spans.GetSpans(), id)
		publish, first, second := named(all, "mine", "publish curl.want"), named(all, "mine", "fetch curl.want"),
			named(all, "mine", "fetch curl.due")
		Expect(publish).To(HaveLen(1))
		Expect(first).To(HaveLen(1))
		Expect(second).To(HaveLen(1))
		By("checking three hops, each a child of the previous one")
		Expect(publish[0].Parent.IsValid()).To(BeFalse())
		Expect(publish[0].SpanKind).To(Equal(trace.SpanKindProducer))
		Expect(first[0].Parent.SpanID()).To(Equal(publish[0].SpanContext.SpanID()))
		Expect(second[0].Parent.SpanID()).To(Equal(first[0].SpanContext.SpanID()), "through the schedule of the server")
		Expect(apply.Parent.SpanID()).To(Equal(second[0].SpanContext.SpanID()))
		Expect(apply.SpanKind).To(Equal(trace.SpanKindConsumer))
		Expect(first[0].Attributes).To(ContainElement(tracing.Outcome.String("retry")))
		Expect(named(all, "mine", "apply curl.result.failure")).To(BeEmpty(), "a failure that a retry ended")
		By("checking the log lines of all three")
		Eventually(func() []string { return traced(log, id.String()) }).Should(ContainElements(
			"watcher: published", HavePrefix("fetcher: fetch failed, retrying in "), "fetcher: fetched", "writer: written"))

		Eventually(func() []tracetest.SpanStub { return named(spans.GetSpans(), "nowhere", "fetch curl.want") }).
			ShouldNot(BeEmpty())
		for _, secret := range secrets {
			Expect(fmt.Sprintf("%+v", spans.GetSpans())).NotTo(ContainSubstring(secret))
		}
		for line := range strings.Lines(string(log.Contents())) {
			if strings.Contains(line, `"message":"starting"`) {
				continue
			}
			for _, secret := range secrets {
				Expect(line).NotTo(ContainSubstring(secret))
			}
		}
	})
})

// named returns the spans with a name and the attribute of a ConfigMap.
func named(spans []tracetest.SpanStub, configMap, name string) (found []tracetest.SpanStub) {
	for _, span := range spans {
		for _, a := range span.Attributes {
			if span.Name == name && a.Key == tracing.ConfigMap && a.Value.AsString() == configMap {
				found = append(found, span)
			}
		}
	}
	return found
}

func ofTrace(spans []tracetest.SpanStub, id trace.TraceID) (found []tracetest.SpanStub) {
	for _, span := range spans {
		if span.SpanContext.TraceID() == id {
			found = append(found, span)
		}
	}
	return found
}
