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
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

// Run is the watcher: it runs until ctx is done, and returns an error only for
// what waiting does not mend.
func Run(ctx context.Context, rt *service.Runtime, c Config, cluster *rest.Config) error {
	p, err := newPublisher(rt, c, cluster)
	if err != nil {
		return err
	}
	rt.Started()
	group, ctx := errgroup.WithContext(ctx)
	log := kube.Logr(rt.Log)
	for _, scope := range c.scopes() {
		group.Go(func() error {
			p.objects.Watch(ctx, p.metadata, scope, c.Selector, log)
			return nil
		})
	}
	group.Go(func() error {
		select {
		case <-p.objects.Synced():
			p.cache.Ready()
			rt.Log.Info().Int("annotated", len(p.objects.Names())).Msg("listed the ConfigMaps")
		case <-ctx.Done():
			return nil
		}
		if c.Election.Enabled {
			return elect(ctx, rt, c.Election, cluster, p.publish)
		}
		return p.publish(ctx)
	})
	return group.Wait()
}

// publisher is what the parts of the watcher share.
type publisher struct {
	config   Config
	rt       *service.Runtime
	metadata metadata.Interface
	objects  *observe.Store
	client   *pipeline.Client
	recorder *kube.Recorder
	metrics  *reconcile.Metrics
	clock    clock.WithTicker
	cache    *service.Part
	streams  *service.Part
	feed     feed
}

func newPublisher(rt *service.Runtime, c Config, cluster *rest.Config) (*publisher, error) {
	grammar, err := annotation.New(c.Grammar)
	if err != nil {
		return nil, err
	}
	// A dead API server is noticed in seconds, not after the stock half minute.
	cluster = rest.CopyConfig(cluster)
	cluster.Dial = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	meta, err := metadata.NewForConfig(metadata.ConfigFor(cluster))
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	events, err := eventsv1.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	metrics, err := reconcile.NewMetrics(rt.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	p := &publisher{
		config:   c,
		rt:       rt,
		metadata: meta,
		client:   pipeline.NewClient(rt.JetStream),
		metrics:  metrics,
		clock:    clock.RealClock{},
		cache:    rt.Health.Part("configmaps"),
		streams:  rt.Health.Part("streams"),
	}
	p.recorder = kube.NewRecorder(events, "watcher", p.clock.Now)
	reader := &observe.Reader{Grammar: grammar, Protected: c.protects, Now: p.clock.Now}
	p.objects = observe.NewStore(reader, c.scopes(), p.feed.changed)
	return p, registerCache(rt.Metrics, p.objects)
}
