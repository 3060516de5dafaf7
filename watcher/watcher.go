// Package watcher sees annotated ConfigMaps, by their metadata only, and
// publishes what each one wants to the stream of requests.
//
// Kubernetes is the source of truth. The stream holds one message for each
// annotated key; the watcher reads them once, compares them with the objects,
// and publishes only differences, each with a compare-and-set, so that several
// watchers at once do no harm.
package watcher

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/exporter"
	"github.com/kv8s/curl-me-that/watcher/internal/known"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

// Run is the watcher: it runs until ctx is done, and returns an error only for
// what waiting does not mend.
func Run(ctx context.Context, rt *service.Runtime, c Config, cluster *rest.Config) error {
	return run(ctx, rt, c, cluster, defaultPace())
}

// pace is how often the watcher looks after what should not happen.
type pace struct {
	// check is how often the streams are looked at: deleted, created anew,
	// purged?
	check time.Duration
	// audit is how often wants are looked for that nothing is on its way for;
	// 0: as configured.
	audit time.Duration
	// export is how often the state of the pipeline is read; 0: as always.
	export time.Duration
	// stall is how long the watch of the API server may be silent.
	stall time.Duration
}

func defaultPace() pace { return pace{check: 15 * time.Second, stall: observe.StallAfter} }

func run(ctx context.Context, rt *service.Runtime, c Config, cluster *rest.Config, at pace) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if at.audit == 0 {
		at.audit = c.Audit
		at.check = min(at.check, at.audit)
	}
	metrics := newMetrics(rt.Metrics, c)
	clients, err := connect(metrics.calls.Of(cluster))
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	defer clients.close()
	p, err := newPublisher(rt, c, clients, at, metrics)
	if err != nil {
		return err
	}
	source := observe.Source{
		Client: clients.configMaps, Redial: clients.redial,
		Selector: c.Selector, StallAfter: at.stall, Log: rt.Log,
	}
	rt.Started()
	group, ctx := errgroup.WithContext(ctx)
	for _, scope := range c.scopes() {
		group.Go(func() error {
			p.objects.Watch(ctx, source, scope)
			return nil
		})
	}
	group.Go(func() error {
		select {
		case <-p.objects.Synced():
			p.cache.Ready()
			rt.Log.Info().Int("annotated", p.objects.Len()).Msg("listed the ConfigMaps")
		case <-ctx.Done():
			return nil
		}
		if c.Election.Enabled {
			return p.elect(ctx, clients.leases)
		}
		return p.publish(ctx)
	})
	return group.Wait()
}

// publisher is what the parts of the watcher share.
type publisher struct {
	config     Config
	pace       pace
	rt         *service.Runtime
	objects    *observe.Store
	client     *pipeline.Client
	index      *known.Index
	reconciler *reconcile.Reconciler
	exporter   *exporter.Exporter
	metrics    *metrics
	clock      clock.WithTicker
	cache      *service.Part
	streams    *service.Part
	feed       feed
}

func newPublisher(rt *service.Runtime, c Config, clients *clients, at pace, metrics *metrics) (*publisher, error) {
	grammar, err := annotation.New(c.Grammar)
	if err != nil {
		return nil, err
	}
	p := &publisher{
		config:  c,
		pace:    at,
		rt:      rt,
		client:  pipeline.NewClient(rt.JetStream),
		index:   known.NewIndex(),
		metrics: metrics,
		clock:   clock.RealClock{},
		cache:   rt.Health.Part("configmaps"),
		streams: rt.Health.Part("streams"),
	}
	reader := &observe.Reader{Grammar: grammar, Protected: c.protects, Now: p.clock.Now, Count: metrics.event}
	p.objects = observe.NewStore(reader, c.scopes(), p.feed.changed)
	p.reconciler = reconcile.New(reconcile.Config{
		Objects: p.objects, Index: p.index, Client: p.client,
		Recorder: kube.NewRecorder(clients.events, "watcher", p.clock.Now),
		Coalesce: c.Coalesce, Repeat: at.audit, Clock: p.clock, Log: rt.Log, Tracer: rt.Tracer, Metrics: metrics.reconciler,
	})
	p.exporter = exporter.New(exporter.Options{
		Client: p.client, Monitors: c.Monitors, Interval: at.export, Clock: p.clock, Log: rt.Log,
	})
	metrics.measure(p.objects, p.index, p.exporter)
	return p, metrics.err()
}
