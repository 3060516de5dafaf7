package fetcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/reload"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Run waits for the streams, handles messages until ctx is done, and then finishes messages in flight.
func Run(ctx context.Context, rt *process.Runtime, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := cfg.limitBodies(rt); err != nil {
		return err
	}
	slots := throttle.New(cfg.Throttle)
	metrics := newMetrics(metric.New(rt.Metrics, "fetcher"), cfg, slots)
	changed, report := make(chan struct{}, 1), reload.Report(rt.Log)
	_, client, err := newGetter(cfg, rt.Log, func(path string, err error) {
		if report(path, err); err == nil {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	clock := pipeline.NewClock()
	signatures, err := signature.LoadVerifier(cfg.TrustedKeys)
	if err != nil {
		return fmt.Errorf("--trusted-keys: %w", err)
	}
	handler := engine.New(cfg.Engine, engine.Deps{
		Client: pipeline.NewClient(rt.JetStream), Getter: client, Throttle: slots, Signatures: signatures,
		Draining: ctx.Done(), Clock: clock, Local: time.Now, Random: rand.Float64, Log: rt.Log, Tracer: rt.Tracer,
		Metrics: metrics,
	})

	// Files are reloaded until the last GET has ended.
	reloading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { client.Run(reloading) })
	group.Go(func() { signatures.Run(reloading, report) })
	group.Go(func() {
		clock.Run(reloading, func(ctx context.Context) (time.Time, error) { return askTime(ctx, rt) })
	})
	group.Go(func() {
		if clock.Wait(reloading.Done()) {
			handler.RetryOnChange(reloading, changed)
		}
	})
	defer context.AfterFunc(ctx, slots.Stop)()
	rt.Started()
	pipeline.Consume(ctx, rt.JetStream, pipeline.ConsumeOptions{
		Stream:      pipeline.Requests,
		Consumer:    pipeline.FetcherConsumer,
		Concurrency: cfg.Throttle.Slots,
		State:       rt.ConsumerHealth("requests"),
		Observe:     handler.Observe,
	}, timed(clock, handler.Handle))
	slots.Stop() // waits for started keys
	return nil
}

// timed delays handling until the broker's time is known.
func timed(clock *pipeline.Clock, handle pipeline.Handler) pipeline.Handler {
	return func(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
		if !clock.Wait(d.Draining()) {
			return pipeline.GiveBack()
		}
		return handle(ctx, d)
	}
}

func newGetter(cfg Config, log zerolog.Logger, onReload func(string, error)) (*egress.Gate, *get.Client, error) {
	if proxy, err := cfg.Get.ProxyURL(); err == nil && proxy != nil {
		if host, err := egress.ParsePattern(proxy.Hostname()); err == nil {
			// Tenants cannot fetch from the proxy itself.
			cfg.Egress.DenyHosts = append(slices.Clone(cfg.Egress.DenyHosts), string(host))
		}
		if cfg.Egress.ProxyResolves {
			log.Warn().Msg("the fetcher checks only names, so the egress proxy must deny private addresses")
		}
	}
	if cfg.TrustedKeys == "" && cfg.Get.HeaderFile+cfg.Get.TenantFile != "" {
		log.Warn().Msg("credentials are sent for every want, whoever published it (see --trusted-keys)")
	}
	gate, err := egress.New(cfg.Egress, egress.Deps{File: cfg.PolicyFile, DialTimeout: cfg.DialTimeout})
	if err != nil {
		return nil, nil, err
	}
	client, err := get.New(cfg.Get, get.Deps{Gate: gate, OnReload: onReload})
	return gate, client, err
}

// askTime asks the broker for its time.
func askTime(ctx context.Context, rt *process.Runtime) (time.Time, error) {
	consumer, err := rt.JetStream.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
	if err != nil {
		return time.Time{}, err
	}
	return consumer.CachedInfo().TimeStamp, nil
}
