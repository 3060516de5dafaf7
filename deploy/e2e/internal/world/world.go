// Package world sets the stage for a spec: a separate namespace, a NATS server, a web server to fetch from, and
// the real services as processes. At the end of the spec, it stops the services and checks the promises.
package world

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Options of the world of a spec.
type Options struct {
	// Cluster overrides the cluster of the environment.
	Cluster *Cluster
	// Kubeconfigs return a kubeconfig for a namespace, by service. By default, services use the
	// administrator's.
	Kubeconfigs map[string]func(ctx context.Context, namespace string) string
	// Flags are additional flags, by service. They override the usual ones.
	Flags map[string][]string
	// Env is the environment of the services.
	Env []string
	// AckWait is the time after which the messages of a killed service are redelivered (0 means
	// pipeline.AckWait).
	AckWait time.Duration
	// Broker is the address of a NATS server that the spec runs itself, and Connect has the options to connect
	// to it.
	Broker  string
	Connect []nats.Option
	// Tenants is the number of additional namespaces of the services.
	Tenants int
	// Without lists services that are not started.
	Without []string
}

// Audited sets an audit every second, and refreshes without jitter.
func Audited(o Options) Options {
	o.Flags = map[string][]string{Watcher: {"--audit-interval=1s"}, Fetcher: {"--refresh-jitter=0"}}
	return o
}

// World is the surroundings of a spec. Its helpers fail the spec.
type World struct {
	// Environment of the suite.
	*Environment
	// Cluster of the services.
	Cluster *Cluster
	// Namespace of the spec. The services use only this one and those of the tenants.
	Namespace string
	// Tenants are views of the world from the additional namespaces, each with its own web server and promise.
	Tenants []*World
	// Origin is the web server to fetch from.
	Origin *origin.Server
	// NATS is the server, unless the spec runs its own.
	NATS *natstest.Server
	// Conn is the spec's own connection to NATS, and JetStream its context.
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	// History of all ConfigMaps in the namespace.
	History *promise.Recorder

	options  Options
	broker   string
	beside   []string // brokers of other installations
	origins  []*origin.Server
	services map[string]*Service
	all      []*Service
	// unfinished is set if the end of the spec should not wait for work in progress.
	unfinished bool
	// breaks are matchers for the promises that the spec breaks on purpose.
	breaks []any
}

// World starts a world and waits until its services are ready. At the end of the spec, it checks and stops
// them.
func (e *Environment) World(ctx context.Context, o Options) *World {
	GinkgoHelper()
	w := &World{Environment: e, Cluster: e.Cluster, options: o, services: map[string]*Service{}}
	if o.Cluster != nil {
		w.Cluster = o.Cluster
	}
	w.inhabit(ctx)
	w.connect()
	for range o.Tenants {
		tenant := *w
		tenant.origins = nil
		tenant.inhabit(ctx)
		w.Trust(tenant.Origin)
		w.Tenants = append(w.Tenants, &tenant)
	}
	if o.AckWait > 0 {
		w.MakeStreams(ctx)
	}

	DeferCleanup(w.dump)
	DeferCleanup(w.kill)
	for _, name := range Services() {
		if !slices.Contains(o.Without, name) {
			w.services[name] = w.Launch(ctx, name)
		}
	}
	if !slices.Contains(o.Without, Watcher) { // without it, no service becomes ready: it creates the streams
		for _, s := range w.all {
			s.EventuallyReady(ctx)
		}
	}
	DeferCleanup(w.check)
	return w
}

// inhabit creates a namespace and a web server, and starts the promise.
func (w *World) inhabit(ctx context.Context) {
	GinkgoHelper()
	w.Namespace = w.Cluster.Namespace(ctx)
	w.Origin = origin.Start()
	w.Trust(w.Origin)
	DeferCleanup(w.Origin.Close)

	w.follow(ctx)
}

// follow starts the promise.
func (w *World) follow(ctx context.Context) {
	GinkgoHelper()
	w.History = suitetest.Must(promise.Follow(ctx, w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace)))
	DeferCleanup(w.History.Stop)
}

// Restored restarts the history after etcd was restored to an older version, and checks
// the promises so far.
func (w *World) Restored(ctx context.Context) {
	GinkgoHelper()
	w.History.Stop()
	Expect(w.Checker().Check(w.History.Lives())).To(BeEmpty(), "broken promises before the restore")
	w.follow(ctx)
	w.History.AllBySpec()
}

// namespaces returns the namespaces of the services.
func (w *World) namespaces() []string {
	all := []string{w.Namespace}
	for _, tenant := range w.Tenants {
		all = append(all, tenant.Namespace)
	}
	return all
}

// connect connects to NATS, and first starts it unless the spec does.
func (w *World) connect() {
	GinkgoHelper()
	if w.options.Broker == "" {
		server := suitetest.Must(natstest.Run(natstest.Options{Listen: true}))
		DeferCleanup(server.Close)
		w.NATS, w.broker = server, server.URL()
	} else {
		w.broker = w.options.Broker
	}
	conn := suitetest.Must(nats.Connect(w.broker, append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}, w.options.Connect...)...))
	DeferCleanup(conn.Close)
	w.Conn = conn
	w.JetStream = suitetest.Must(jetstream.New(conn))
}

// Trust accepts bodies of another web server as good.
func (w *World) Trust(s *origin.Server) { w.origins = append(w.origins, s) }

func (w *World) served(url string, body []byte) bool {
	return slices.ContainsFunc(w.origins, func(s *origin.Server) bool { return s.Served(url, body) })
}

// MakeStreams creates the streams and consumers before the watcher does, which would set AckWait to its
// default.
func (w *World) MakeStreams(ctx context.Context) {
	GinkgoHelper()
	suitetest.Must(pipeline.Ensure(ctx, w.JetStream, pipeline.Topology{}))
	for stream, durable := range map[string]string{
		pipeline.Requests: pipeline.FetcherConsumer,
		pipeline.Results:  pipeline.WriterConsumer,
	} {
		consumer := suitetest.Must(w.JetStream.Consumer(ctx, stream, durable))
		config := consumer.CachedInfo().Config
		config.AckWait = w.options.AckWait
		suitetest.Must(w.JetStream.UpdateConsumer(ctx, stream, config))
	}
}

// Broker returns the address of NATS.
func (w *World) Broker() string { return w.broker }
