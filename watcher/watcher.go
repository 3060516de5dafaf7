// Package watcher watches the metadata of annotated ConfigMaps and publishes their wants to the stream of
// requests.
//
// Kubernetes is the source of truth. The stream holds one message per annotated key. The watcher reads
// them once and publishes only differences, each with a compare-and-set, so several active watchers do no
// harm.
package watcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/audit"
	"github.com/kv8s/curl-me-that/watcher/internal/exporter"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/session"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Run runs the watcher until ctx is done. It returns an error only if a retry cannot help.
func Run(ctx context.Context, rt *process.Runtime, c Config, api *rest.Config) error {
	return run(ctx, rt, c, api, defaultIntervals())
}

// intervals has the time between regular checks, and the clock.
type intervals struct {
	// check is the interval between checks for deleted, recreated or purged streams.
	check time.Duration
	// audit is the interval between audits (0: as configured).
	audit time.Duration
	// export is the interval of the exporter.
	export time.Duration
	// stall is the maximum silence of the watch.
	stall time.Duration
	// wall is the machine's clock.
	wall clock.WithTicker
}

func defaultIntervals() intervals {
	return intervals{
		check: 15 * time.Second, export: exporter.Interval, stall: informer.StallAfter, wall: clock.RealClock{},
	}
}

func run(ctx context.Context, rt *process.Runtime, c Config, api *rest.Config, at intervals) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if at.audit == 0 {
		at.audit = c.Audit
		at.check = min(at.check, at.audit)
	}
	metrics := newMetrics(rt.Metrics, c)
	clients, err := informer.NewClients(metrics.calls.Counted(api))
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	defer clients.Close()
	s, err := newService(rt, c, at, clients, metrics)
	if err != nil {
		return err
	}
	source := informer.Source{
		Objects: informer.ConfigMaps(clients.Metadata), Redial: clients.Redial,
		Selector: c.Selection.Selector, StallAfter: at.stall, CompareEvery: at.audit, Log: rt.Log,
	}
	rt.Started()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		s.objects.Watch(ctx, source)
		return nil
	})
	group.Go(func() error {
		select {
		case <-s.objects.Synced():
			s.cache.Ready()
			rt.Log.Info().Int("annotated", s.objects.Len()).Msg("listed the ConfigMaps")
		case <-ctx.Done():
			return nil
		}
		s.quota.Decide()
		group.Go(func() error {
			s.quota.Run(ctx, func(name types.NamespacedName) { s.sessions.Changed(name, false) })
			return nil
		})
		return leader.Run(ctx, c.Election, leader.Deps{
			Leases: clients.Leases, Lead: s.lead, Health: s.streams, Holding: metrics.lease, Log: rt.Log,
		})
	})
	return group.Wait()
}

// service has the components of the watcher.
type service struct {
	objects  *informer.Informer[*annotated.Object]
	quota    *quota.Quota
	sessions *session.Runner
	export   *exporter.Exporter
	metrics  *metrics
	// cache is ready once the objects are listed, and streams while a session publishes.
	cache, streams *process.HealthPart
}

// newService creates the components of the watcher, each one after the components that it uses.
func newService(
	rt *process.Runtime, c Config, at intervals, clients *informer.Clients, metrics *metrics,
) (*service, error) {
	grammar, err := annotation.New(c.Selection.Grammar)
	if err != nil {
		return nil, err
	}
	signer, err := signature.LoadSigner(c.SigningKey)
	if err != nil {
		return nil, fmt.Errorf("--signing-key: %w", err)
	}
	s := &service{metrics: metrics, cache: rt.Health.Part("configmaps"), streams: rt.Health.Part("streams")}
	reader := &annotated.Reader{Grammar: grammar, Protected: c.protects, Now: at.wall.Now}
	s.objects = informer.New(informer.Config{Namespaces: c.Namespaces, SkipForbidden: true},
		informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{
			Read: reader.Read, Now: at.wall.Now, Count: metrics.event, Notify: s.changed,
		})
	s.quota = quota.New(c.Quota, s.objects)
	client, index := pipeline.NewClient(rt.JetStream), wantindex.NewIndex()
	brokerClock := brokerTime{WithTicker: at.wall, broker: pipeline.NewClock()}
	managed := &streams{js: rt.JetStream, config: c, clock: brokerClock.broker, log: rt.Log}
	auditor := audit.New(at.audit, audit.Deps{
		Client: client, Index: index, Object: s.quota.Get, Clock: brokerClock, Log: rt.Log, Metrics: metrics.audit,
	})
	backlog := reconcile.NewBacklog(client)
	reconciler := reconcile.New(reconcile.Config{
		Coalesce: c.Coalesce, Repeat: at.audit, Installation: c.Election.Installation(), MaxRemovals: c.MaxRemovals,
	}, reconcile.Deps{
		Objects: s.objects, Object: s.quota.GetCompiled, Index: index, Backlog: backlog, Client: client,
		Clock: at.wall, BrokerClock: brokerClock, Signer: signer, Tracer: rt.Tracer, Log: rt.Log, Metrics: metrics.reconciler,
		Record: kube.NewRecorder(clients.Events, "watcher", at.wall, kube.EventBudget{
			Budget: budget.New(c.Events, time.Now), OverBudget: metrics.reconciler.EventsOverBudget, Log: rt.Log,
		}).Record,
	})
	s.sessions = session.NewRunner(session.Config{
		Installation: c.Election.Installation(), InScope: c.watches, Workers: c.Workers, CheckInterval: at.check,
	}, session.Deps{
		Names: s.objects.Names, Reconcile: reconciler.Reconcile, Audit: auditor.Run, Epoch: managed.epoch, Client: client,
		Index: index, Backlog: backlog, Clock: at.wall, Health: s.streams, Log: rt.Log, Metrics: metrics.sessions,
	})
	s.export = exporter.New(at.export, exporter.Deps{Client: client, Log: rt.Log})
	metrics.measure(keys{
		objects: s.objects, object: s.quota.Get, index: index, notLanding: auditor.NotLanding, now: brokerClock.Now,
	}, s.export)
	return s, nil
}

// changed passes on a changed object. The watch begins after newService.
func (s *service) changed(name types.NamespacedName, live bool) {
	s.quota.Changed()
	s.sessions.Changed(name, live)
}

// lead is the work of the leader, which also exports the state of the pipeline.
func (s *service) lead(ctx context.Context) error {
	s.metrics.leader.Set(1)
	defer s.metrics.leader.Set(0)
	var exports sync.WaitGroup
	defer exports.Wait()
	exporting, stop := context.WithCancel(ctx)
	defer stop()
	exports.Go(func() { s.export.Run(exporting) })
	return s.sessions.Run(ctx)
}
