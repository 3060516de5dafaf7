package writer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/reload"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Run applies results until ctx is done. Then it finishes the results that it has begun, returns the others to
// NATS, and returns nil.
func Run(ctx context.Context, rt *process.Runtime, c Config, cluster *rest.Config) error {
	metrics := newMetrics(rt.Metrics)
	client, err := apiserver.NewClient(metrics.calls.Counted(cluster))
	if err != nil {
		return fmt.Errorf("start writer: %w", err)
	}
	defer client.Close()
	breaking := apiserver.NewBreaker(apiserver.BreakerDeps{
		Probe: client.Probe, Log: rt.Log, Part: rt.Health.Part("kubernetes"),
	})
	metrics.measure(breaking)
	signatures, err := signature.LoadVerifier(c.TrustedKeys)
	if err != nil {
		return fmt.Errorf("--trusted-keys: %w", err)
	}
	applier, err := newApplier(c, apply.Deps{
		Client: client, Breaker: breaking, Signatures: signatures, Metrics: metrics.applier, Tracer: rt.Tracer,
		Log: rt.Log, Pipeline: pipeline.NewClient(rt.JetStream),
		Recorder: kube.NewRecorder(client.Events(), "writer", clock.RealClock{}, kube.EventBudget{
			Budget: budget.New(c.Events, time.Now), OverBudget: metrics.applier.EventsOverBudget, Log: rt.Log,
		}),
	})
	if err != nil {
		return fmt.Errorf("start writer: %w", err)
	}
	state := rt.ConsumerHealth("results")
	rt.Started()

	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { breaking.Run(ctx) })
	group.Go(func() { signatures.Run(ctx, reload.Report(rt.Log)) })
	pipeline.Consume(ctx, rt.JetStream, pipeline.ConsumeOptions{
		Stream: pipeline.Results, Consumer: pipeline.WriterConsumer,
		Concurrency: apply.MaxMessages, MaxBytes: apply.MaxBytes, State: state, Observe: applier.Observe,
	}, applier.Handle)
	applier.Wait()
	return nil
}

func newApplier(c Config, d apply.Deps) (*apply.Applier, error) {
	grammar, err := annotation.New(c.Selection.Grammar)
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(c.Selection.Selector)
	if err != nil {
		return nil, fmt.Errorf("parse selector: %w", err)
	}
	d.Protected, d.Decoder = c.Selection.Protected, plan.Decoder{Grammar: grammar, Selector: selector}
	return apply.New(c.Config, d)
}

// Metrics returns the definitions of the writer's metrics.
func Metrics() []metric.Definition {
	m := newMetrics(prometheus.NewRegistry())
	m.measure(new(apiserver.Breaker))
	return append(m.own.Definitions(), m.standard.Definitions()...)
}

type metrics struct {
	own, standard *metric.Set

	applier *apply.Metrics
	calls   *kube.RequestMetrics
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{own: metric.New(registry, "writer"), standard: metric.Standard(registry)}
	m.applier = apply.NewMetrics(m.own)
	m.calls = kube.NewRequestMetrics(m.standard, "GET", "PATCH", "POST")
	return m
}

// measure registers the metrics of the breaker.
func (m *metrics) measure(b *apiserver.Breaker) {
	m.own.BoolFunc("api_server_available", "Whether the Kubernetes API server is available: 0 or 1.", b.Available)
	m.own.GaugeFunc("denied_namespaces", "Namespaces in which the writer recently lacked a permission.",
		func() float64 { return float64(b.Denied()) })
}
