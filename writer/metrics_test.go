package writer_test

import (
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/writer"
)

const own = "curlmethat_writer_"

// moved are the series that the work of a writer increases.
func moved() []string {
	return []string{
		own + `results_total{outcome="written"}`, own + `patches_total{outcome="ok"}`,
		own + `patches_total{outcome="conflict"}`, own + `patches_total{outcome="unavailable"}`,
		own + "conflicts_exhausted_total", own + `reads_total{kind="metadata"}`,
		own + `messages_total{outcome="ack"}`, own + `messages_total{outcome="retry"}`,
		own + `messages_total{outcome="dead_letter"}`, own + `events_emitted_total{reason="BadStatus"}`,
		own + "batch_messages", own + "apply_duration_seconds", own + "result_age_seconds",
		`rest_client_requests_total{code="200",method="PATCH"}`, `rest_client_request_duration_seconds{method="PATCH"}`,
	}
}

// shown are the metrics that others move or read.
func shown() []string {
	return []string{
		own + "api_server_available", own + "in_flight_messages",
		own + "in_flight_limit_messages", own + "denied_namespaces", own + "annotation_to_data_seconds",
		own + "over_budget_total", own + "events_over_budget_total", own + "versions_total",
	}
}

func definitions() []metric.Definition { return append(process.Metrics("writer"), writer.Metrics()...) }

var _ = Describe("The metrics of a writer", func() {
	It("move with its work", func(ctx SpecContext) {
		w.start()
		before := map[string]float64{}
		for _, series := range moved() {
			before[series], _ = w.Value(series)() // 0 if it does not exist yet
		}
		edit := func(value int) {
			w.edit("cm", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"edit": fmt.Sprint(value)} })
		}
		cm := w.create(asking("cm", "mydata="+url+" other="+url))
		edit(0)
		suitetest.Must(w.js.Publish(ctx, "curl.result.content.ns.cm.key", []byte("garbage")))
		w.apply(w.content(w.want(cm, "mydata", url), "body"), w.failure(w.want(cm, "other", url), 500))

		edits := 0
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch && edits < 20 {
				edits++
				edit(edits)
			}
			return next(r)
		})
		w.apply(w.content(w.want(cm, "mydata", url), "another body"))

		w.calls.unreachable()
		Expect(w.Value(own + "api_server_available")()).To(BeEquivalentTo(1))
		w.publish(w.content(w.want(cm, "mydata", url), "a"), w.failure(w.want(cm, "mydata", url), 500))
		Eventually(w.Value(own + "api_server_available")).Should(BeZero())
		for series, value := range before {
			Eventually(w.Value(series)).Should(BeNumerically(">", value), series)
		}
	})

	It("show the number of namespaces without a permission", func() {
		w.cluster.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
		w.start()
		Expect(w.Value(own + "denied_namespaces")()).To(BeZero())
		cm := w.create(asking("cm", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		Eventually(w.Value(own + "denied_namespaces")).Should(BeEquivalentTo(1))
		Expect(w.Value(own + `patches_total{outcome="forbidden"}`)()).To(BeNumerically(">", 0))
	})

	It("measure the time from annotation to data once, at the first response", func() {
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		want := w.want(cm, "mydata", url)
		want.AskedAt = timestamppb.Now()
		w.apply(w.failure(want, 500))
		Expect(w.Value(own+"annotation_to_data_seconds")()).To(BeZero(), "a failure has no data")
		w.apply(w.content(due(want), "body"))
		Expect(w.Value(own + "annotation_to_data_seconds")()).To(BeEquivalentTo(1))
		again := w.content(due(want), "other body")
		again.Answered = true
		w.apply(again)
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "other body"))
		Expect(w.Value(own+"annotation_to_data_seconds")()).To(BeEquivalentTo(1), "nobody waits for a refresh")
	})

	It("each have a spec", func() {
		Expect(suitetest.UnnamedMetrics(writer.Metrics(), append(shown(), moved()...))).To(BeEmpty())
	})

	It("follow the conventions and their definitions, and show a setting", func() {
		w.start()
		Expect(w.Value(own + "in_flight_limit_messages")()).To(BeEquivalentTo(256))
		Expect(w.Value(`curlmethat_build_info{component="writer"`)()).To(BeEquivalentTo(1))
		cm := w.create(asking("cm", "mydata="+url+" other="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "body"), w.failure(w.want(cm, "other", url), 500))
		Expect(suitetest.MetricProblems(w.Metrics, definitions())).To(BeEmpty())
	})
})
