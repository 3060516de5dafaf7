package writer

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/batch"
	"github.com/kv8s/curl-me-that/writer/internal/inbox"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

const (
	// messages and messageBytes bound what is in work at a time. Bodies of a
	// mebibyte would else fill the memory of a small pod.
	messages     = 256
	messageBytes = 64 << 20
)

// Run applies results until ctx is done. It then takes no more, finishes what
// it has begun, gives the rest back to the server, and returns nil.
func Run(ctx context.Context, rt *service.Runtime, c Config, cluster *rest.Config) error {
	metrics := newMetrics(rt.Metrics)
	client, err := apply.NewClient(metrics.calls.Of(cluster))
	if err != nil {
		return fmt.Errorf("start writer: %w", err)
	}
	defer client.Close()
	gate := apply.NewGate(client.Probe, clock.RealClock{}, rt.Log, rt.Health.Part("kubernetes"))
	metrics.measure(gate)
	if err := metrics.err(); err != nil {
		return err
	}
	in, drained, err := assemble(rt, c, client, gate, metrics)
	if err != nil {
		return fmt.Errorf("start writer: %w", err)
	}
	state := rt.ConsumerHealth("results")
	rt.Started()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		gate.Run(ctx)
		return nil
	})
	group.Go(func() error {
		defer drained()
		return pipeline.ConsumeMessages(ctx, rt.JetStream, pipeline.ConsumeOptions{
			Stream:      pipeline.Results,
			Consumer:    pipeline.WriterConsumer,
			Concurrency: messages,
			MaxBytes:    messageBytes,
			State:       state,
		}, in.Handle)
	})
	return group.Wait()
}

// assemble puts the parts of the writer together. It returns what handles
// messages, and what waits for all of them to be handled.
func assemble(rt *service.Runtime, c Config, client *apply.Client, gate *apply.Gate, metrics *metrics) (*inbox.Inbox, func(), error) {
	grammar, err := annotation.New(c.Grammar)
	if err != nil {
		return nil, nil, err
	}
	selector, err := labels.Parse(c.Selector)
	if err != nil {
		return nil, nil, fmt.Errorf("parse selector: %w", err)
	}
	applier, err := apply.New(apply.Options{
		Client:   client,
		Recorder: kube.NewRecorder(client.Events(), "writer", time.Now),
		Judge:    judge.Judge{Prune: c.Prune},
		View:     judge.Viewer{Grammar: grammar, Selector: selector},
		Gate:     gate,
		Metrics:  metrics.applier,
		Log:      rt.Log,
		Clock:    clock.RealClock{},
	})
	if err != nil {
		return nil, nil, err
	}
	queue, err := batch.New(batch.Options{Linger: c.Linger, Concurrency: c.Concurrency, Clock: clock.RealClock{}}, applier.Apply)
	if err != nil {
		return nil, nil, err
	}
	letters := pipeline.NewClient(rt.JetStream)
	return inbox.New(inbox.Reader{Protected: c.Protected}, gate, queue, letters, metrics.inbox, rt.Tracer, rt.Log), queue.Wait, nil
}
