package fetcher

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/admission"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/metric"
)

// Run reads messages and handles them until ctx is done, and then finishes
// what is in work. The streams and the consumer need not exist yet.
func Run(ctx context.Context, rt *service.Runtime, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	maxPayload := rt.NATS.MaxPayload()
	body, err := bodyLimit(cfg.Get.MaxBody, maxPayload)
	if err != nil {
		return err
	}
	if err := checkMemory(cfg.Admission.Slots, body, memoryLimit()); err != nil {
		return err
	}
	rt.Log.Info().Int64("max_body", body).Int64("max_payload", maxPayload).Int("concurrency", cfg.Admission.Slots).
		Msg("bodies up to max_body bytes are taken")
	cfg.Get.MaxBody = body
	cfg.Engine.Sharing.Bytes = sharedBodies * body

	limiter, err := admission.New(cfg.Admission, time.Now)
	if err != nil {
		return err
	}
	set := metric.New(rt.Metrics, "fetcher")
	metrics := newMetrics(set, cfg, limiter)
	if err := set.Err(); err != nil {
		return err
	}
	gate, client, err := newGetter(cfg, rt.Log, metrics)
	if err != nil {
		return err
	}
	handler, err := newEngine(ctx, rt, cfg, client, limiter, metrics)
	if err != nil {
		return err
	}

	// The files are followed until the last GET is done.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return gate.Run(following) })
	group.Go(func() error { return client.Run(following) })
	consumption := consumption(rt, cfg.Admission.Slots)
	rt.Started()
	group.Go(func() error {
		defer stop()
		return pipeline.ConsumeMessages(ctx, rt.JetStream, consumption, handler.Handle)
	})
	return group.Wait()
}

func newGetter(cfg Config, log zerolog.Logger, observer get.Observer) (*egress.Gate, *get.Client, error) {
	said := func(what string, err error) {
		if err != nil {
			log.Error().Err(err).Msg("keeping the last good " + what)
			return
		}
		log.Info().Msg("took a new " + what)
	}
	gate, err := egress.New(cfg.Egress, egress.Options{
		File:        cfg.PolicyFile,
		DialTimeout: cfg.DialTimeout,
		OnReload:    func(err error) { said("egress policy", err) },
	})
	if err != nil {
		return nil, nil, err
	}
	client, err := get.New(cfg.Get, gate, get.Dependencies{
		Observer: observer,
		OnReload: func(path string, err error) { said("file "+path, err) },
	})
	return gate, client, err
}

func newEngine(ctx context.Context, rt *service.Runtime, cfg Config, client *get.Client, limiter *admission.Limiter,
	metrics *engine.Metrics,
) (*engine.Engine, error) {
	return engine.New(cfg.Engine, engine.Dependencies{
		Client:   pipeline.NewClient(rt.JetStream),
		Getter:   client,
		Limiter:  limiter,
		Draining: ctx.Done(),
		Now:      time.Now,
		Random:   rand.Float64,
		Log:      rt.Log,
		Tracer:   rt.Tracer,
		Metrics:  metrics,
	})
}

// consumption says how messages are taken, and tells of every change.
func consumption(rt *service.Runtime, concurrency int) pipeline.ConsumeOptions {
	return pipeline.ConsumeOptions{
		Stream:      pipeline.Requests,
		Consumer:    pipeline.FetcherConsumer,
		Concurrency: concurrency,
		State:       rt.ConsumerHealth("requests"),
	}
}
