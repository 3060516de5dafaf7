package writer

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/reload"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/batch"
	"github.com/kv8s/curl-me-that/writer/internal/breaker"
	"github.com/kv8s/curl-me-that/writer/internal/inbox"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	// messages and messageBytes limit the messages in flight. Larger bodies could exceed the memory
	// of a small pod.
	messages     = 256
	messageBytes = 64 << 20
)

// Run applies results until ctx is done. Then it finishes running work, gives the rest back to the
// server, and returns nil.
func Run(ctx context.Context, rt *process.Runtime, c Config, cluster *rest.Config) error {
	metrics := newMetrics(rt.Metrics)
	client, err := apiserver.NewClient(metrics.calls.Of(cluster))
	if err != nil {
		return fmt.Errorf("start writer: %w", err)
	}
	defer client.Close()
	breaking := breaker.New(breaker.Deps{Probe: client.Probe, Log: rt.Log, Part: rt.Health.Part("kubernetes")})
	metrics.measure(breaking)
	if err := metrics.err(); err != nil {
		return err
	}
	made, err := assemble(rt, c, client, breaking, metrics)
	if err != nil {
		return fmt.Errorf("start writer: %w", err)
	}
	state := rt.ConsumerHealth("results")
	rt.Started()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		breaking.Run(ctx)
		return nil
	})
	group.Go(func() error { return made.signatures.Run(ctx, nil, reload.Report(rt.Log)) })
	group.Go(func() error {
		defer made.drained()
		return pipeline.Consume(ctx, rt.JetStream, pipeline.ConsumeOptions{
			Stream:      pipeline.Results,
			Consumer:    pipeline.WriterConsumer,
			Concurrency: messages,
			MaxBytes:    messageBytes,
			State:       state,
			// The writer may not access the records of started messages in the stream of requests.
			MaxUnended: pipeline.Uncounted,
			Observe:    made.inbox.Observe,
		}, made.inbox.Handle)
	})
	return group.Wait()
}

// parts are the parts of a running writer.
type parts struct {
	inbox *inbox.Inbox
	// drained waits until all messages are handled.
	drained    func()
	signatures *signature.Verifier
}

// assemble makes the parts of the writer.
func assemble(
	rt *process.Runtime, c Config, client *apiserver.Client, breaking *breaker.Breaker, metrics *metrics,
) (*parts, error) {
	grammar, err := annotation.New(c.Grammar)
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(c.Selector)
	if err != nil {
		return nil, fmt.Errorf("parse selector: %w", err)
	}
	signatures, err := signature.LoadVerifier(c.TrustedKeys)
	if err != nil {
		return nil, fmt.Errorf("--trusted-keys: %w", err)
	}
	applier, err := apply.New(apply.Config{
		Planner: plan.Planner{Prune: c.Prune},
		Decoder: plan.Decoder{Grammar: grammar, Selector: selector},
		Writes:  c.Writes, WriteBytes: c.WriteBytes, Events: c.Events,
	}, apply.Deps{
		Client:     client,
		Breaker:    breaking,
		Signatures: signatures,
		Recorder:   kube.NewRecorder(client.Events(), "writer", clock.RealClock{}),
		Metrics:    metrics.applier,
		Log:        rt.Log,
	})
	if err != nil {
		return nil, err
	}
	queue := batch.New(batch.Config[types.NamespacedName, plan.Item, apply.Outcome]{
		Linger: c.Linger, Concurrency: c.Concurrency,
		Share: func(ref types.NamespacedName) string { return ref.Namespace }, Work: applier.Apply,
	})
	return &parts{
		inbox: inbox.New(inbox.Config{Protected: c.Protected, Messages: messages, Bytes: messageBytes}, inbox.Deps{
			Breaker: breaking,
			Queue:   queue,
			Metrics: metrics.inbox,
			Tracer:  rt.Tracer,
			Log:     rt.Log,
		}),
		drained: queue.Wait, signatures: signatures,
	}, nil
}
