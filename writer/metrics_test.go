package writer_test

import (
	"context"
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

// value returns the sum of the series with this prefix.
func (w *world) value(series string) func() (float64, error) {
	return func() (float64, error) { return suitetest.MetricValue(w.metrics, series) }
}

// move is an action that moves a series of the writer.
type move struct {
	series string
	do     func(*world)
	// to is the value afterwards. Nil means more than before.
	to OmegaMatcher
}

const own = "curlmethat_writer_"

// moves has one action for each metric.
func moves() []move {
	write := func(w *world) {
		cm := w.create(asking("cm", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
	}
	fail := func(w *world) {
		cm := w.create(asking("cm", "mydata="+url))
		w.publish(w.failure(w.want(cm, "mydata", url), 500))
	}
	conflict := func(w *world) {
		want := w.want(w.create(asking("cm", "mydata="+url)), "mydata", url)
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": "b"} })
		w.publish(w.content(want, "body"))
	}
	outage := func(w *world) {
		cm := w.create(asking("cm", "mydata="+url))
		w.calls.unreachable()
		w.publish(w.content(w.want(cm, "mydata", url), "a"), w.failure(w.want(cm, "mydata", url), 500))
	}
	garbage := func(w *world) {
		must(w.js.Publish(w.ctx(), "curl.result.content.ns.cm.key", []byte("garbage")))
	}
	return []move{
		{own + `results_total{verdict="written"}`, write, nil},
		{own + `patches_total{outcome="ok"}`, write, nil},
		{own + `patches_total{outcome="conflict"}`, conflict, nil},
		{own + `patches_total{outcome="unavailable"}`, outage, nil},
		{own + "conflicts_exhausted_total", contend, nil},
		{own + `reads_total{kind="metadata"}`, conflict, nil},
		{own + `messages_total{disposition="ack"}`, write, nil},
		{own + `messages_total{disposition="retry"}`, outage, nil},
		{own + `messages_total{disposition="dead_letter"}`, garbage, nil},
		{own + `events_emitted_total{reason="BadStatus"}`, fail, nil},
		{own + "batch_messages", write, nil},
		{own + "apply_duration_seconds", write, nil},
		{own + "result_age_seconds", write, nil},
		{own + "in_flight_messages", hold, nil},
		{own + "api_server_available", outage, BeZero()},
		{`rest_client_requests_total{code="200",method="PATCH"}`, write, nil},
		{`rest_client_request_duration_seconds{method="PATCH"}`, write, nil},
	}
}

// contend changes the object before each patch.
func contend(w *world) {
	cm := w.create(asking("cm", "mydata="+url))
	edits := 0
	w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method == http.MethodPatch && edits < 20 {
			edits++
			w.edit("cm", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"edit": fmt.Sprint(edits)} })
		}
		return next(r)
	})
	w.publish(w.content(w.want(cm, "mydata", url), "body"))
}

// hold blocks patches until the spec ends.
func hold(w *world) {
	held, release := context.WithCancel(context.Background())
	w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method == http.MethodPatch {
			<-held.Done()
		}
		return next(r)
	})
	DeferCleanup(release)
	cm := w.create(asking("cm", "mydata="+url))
	w.publish(w.content(w.want(cm, "mydata", url), "body"))
}

// shown are the metrics with a spec of their own, without a move.
func shown() []string {
	return []string{
		own + "in_flight_limit_messages", own + "denied_namespaces", own + "annotation_to_data_seconds",
		own + "over_budget_total", own + "events_dropped_total", own + "versions_total",
	}
}

func definitions() []metric.Definition { return append(process.Metrics("writer"), writer.Metrics()...) }

var _ = Describe("The metrics of a writer", func() {
	for _, m := range moves() {
		It("move: "+m.series, func(ctx SpecContext) {
			w := newWorld(ctx)
			w.start()
			before := must(w.value(m.series)())
			m.do(w)
			to := m.to
			if to == nil {
				to = BeNumerically(">", before)
			}
			Eventually(w.value(m.series)).Should(to)
		})
	}

	It("show the number of namespaces without a permission", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
		w.start()
		Expect(w.value(own + "denied_namespaces")()).To(BeZero())
		cm := w.create(asking("cm", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		Eventually(w.value(own + "denied_namespaces")).Should(BeEquivalentTo(1))
		Expect(w.value(own + `patches_total{outcome="forbidden"}`)()).To(BeNumerically(">", 0))
	})

	It("measure the time from annotation to data once, at the first response", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		want := w.want(cm, "mydata", url)
		want.AskedAt = timestamppb.Now()
		w.apply(w.failure(want, 500))
		Expect(w.value(own+"annotation_to_data_seconds")()).To(BeZero(), "a failure has no data")
		w.apply(w.content(due(want), "body"))
		Expect(w.value(own + "annotation_to_data_seconds")()).To(BeEquivalentTo(1))
		again := w.content(due(want), "other body")
		again.Answered = true
		w.apply(again)
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "other body"))
		Expect(w.value(own+"annotation_to_data_seconds")()).To(BeEquivalentTo(1), "nobody waits for a refresh")
	})

	It("each have a spec", func() {
		series := shown()
		for _, m := range moves() {
			series = append(series, m.series)
		}
		Expect(suitetest.UnnamedMetrics(writer.Metrics(), series)).To(BeEmpty())
	})

	It("follow the conventions and their definitions, and show a setting", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.start()
		Expect(w.value(own + "in_flight_limit_messages")()).To(BeEquivalentTo(256))
		Expect(w.value(`curlmethat_build_info{component="writer"`)()).To(BeEquivalentTo(1))
		cm := w.create(asking("cm", "mydata="+url+" other="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "body"), w.failure(w.want(cm, "other", url), 500))
		Expect(suitetest.MetricProblems(w.metrics, definitions())).To(BeEmpty())
	})
})
