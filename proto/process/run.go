// Package process is the runtime of every process of curl-me-that: a command with flags and
// environment variables, logs, a connection to NATS, health and metrics over HTTP, and a run loop
// that drains.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// Options are the flags that every service has.
type Options struct {
	Log       LogOptions
	NATS      NATSOptions
	Addresses Addresses
	// WithoutNATS means that the service does not use the broker.
	WithoutNATS bool
}

// BindFlags adds the flags of the options; listen is the default address.
func (o *Options) BindFlags(fs *pflag.FlagSet, listen string) {
	o.Log.BindFlags(fs)
	if !o.WithoutNATS {
		o.NATS.BindFlags(fs)
	}
	o.Addresses.BindFlags(fs, listen)
}

const flushTimeout = 2 * time.Second

// Runtime is the environment of a service. Services of one process share the first four.
type Runtime struct {
	Log     zerolog.Logger
	Health  *Health
	Metrics prometheus.Registerer
	// Tracer is nil if tracing is off.
	Tracer *tracing.Tracer

	// NATS is connected, and JetStream uses it. Nil without NATS.
	NATS      *nats.Conn
	JetStream jetstream.JetStream

	running *HealthPart
}

// runningPart is ready from the call of Started until the service drains.
const runningPart = "running"

// Started must be called when the service has added all its parts to Health. The process is not
// ready before.
func (rt *Runtime) Started() { rt.running.Ready() }

// Run runs the only service of a process: it sets up logs, health, metrics and traces, serves them, and calls
// Runtime.Run. While the service drains, /readyz responds with 503 and /healthz with 200.
func (o *Options) Run(ctx context.Context, name string, serve func(context.Context, *Runtime) error) error {
	log, err := o.Log.New(os.Stderr, name)
	if err != nil {
		return err
	}
	var broker *NATSOptions
	if !o.WithoutNATS {
		broker = &o.NATS
		if err := broker.Validate(); err != nil {
			return err
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	health := NewHealth()
	tracer := tracing.FromEnv(ctx, name, BuildVersion(), log)
	defer tracer.Shutdown(context.WithoutCancel(ctx))
	rt := Runtime{Log: log, Health: health, Metrics: registry, Tracer: tracer, running: health.Part(runningPart)}
	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	endpointsCtx, closeEndpoints := context.WithCancel(groupCtx)
	defer closeEndpoints()
	endpoints, err := o.Addresses.Open(health, registry)
	if err != nil {
		return err
	}
	for _, listen := range endpoints {
		group.Go(func() error { return listen(endpointsCtx) })
	}
	group.Go(func() error {
		defer closeEndpoints()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(groupCtx, cancel)()
		log.Info().Str("version", BuildVersion()).Msg("starting")
		return rt.Run(ctx, name, broker, serve)
	})
	return group.Wait()
}

// ErrClosed means that nats.go never reconnects. It gives up after most errors that a server sends, for example
// because the server was reloaded with a lower max_payload, of which it does not tell its clients.
var ErrClosed = errors.New("NATS closed the connection for good")

// Run runs a service until ctx is done or the service fails. With the options of a broker, it gets a connection of its
// own, whose published messages are flushed at the end.
func (rt Runtime) Run(
	ctx context.Context, name string, broker *NATSOptions, serve func(context.Context, *Runtime) error,
) error {
	if rt.running == nil {
		rt.running = rt.Health.Part(runningPart)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(ctx, func() { rt.running.NotReady("draining") })()
	set := metric.New(rt.Metrics, name)
	measureBuild(set, name)
	if broker != nil {
		part := rt.Health.Part("nats")
		conn := measureConnection(set, part)
		var err error
		if rt.NATS, err = broker.Connect(ctx, name, rt.Log, part); err != nil {
			return err
		}
		defer rt.NATS.Close()
		closed := func(nc *nats.Conn) { end(fmt.Errorf("%w: %w", ErrClosed, nc.LastError())) }
		if rt.NATS.SetClosedHandler(closed); rt.NATS.IsClosed() {
			closed(rt.NATS)
		}
		conn.Store(rt.NATS)
		if rt.JetStream, err = jetstream.New(rt.NATS); err != nil {
			return fmt.Errorf("use JetStream: %w", err)
		}
	}
	if err := serve(ctx, &rt); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, ErrClosed) {
		return err
	}
	if broker != nil {
		if err := rt.NATS.FlushTimeout(flushTimeout); err != nil && rt.NATS.IsConnected() {
			rt.Log.Warn().Err(err).Msg("not all acknowledgements reached NATS")
		}
	}
	rt.Log.Info().Msg("stopped")
	return nil
}

// Metrics returns the metrics that every service has.
func Metrics(name string) []metric.Definition {
	set := metric.New(prometheus.NewRegistry(), name)
	measureConnection(set, NewHealth().Part("nats"))
	measureBuild(set, name)
	return set.Definitions()
}

// MetricsWithoutNATS returns them for a service that does not use the broker.
func MetricsWithoutNATS(name string) []metric.Definition {
	set := metric.New(prometheus.NewRegistry(), name)
	measureBuild(set, name)
	return set.Definitions()
}

// measureBuild exposes service and version.
func measureBuild(set *metric.Set, name string) {
	d := metric.Definition{
		Name: metric.Project + "_build_info", Kind: metric.Gauge,
		Help: "Always 1.",
		Labels: []metric.Label{
			metric.Labeled("component", name),
			{Name: "version", Open: "version of the release"},
			{Name: "goversion", Open: "version of Go"},
		},
	}
	set.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: d.Name, Help: d.Help,
		ConstLabels: prometheus.Labels{"component": name, "version": BuildVersion(), "goversion": runtime.Version()},
	}, func() float64 { return 1 }), d)
}

// measureConnection creates the metrics of the connection to the broker, which the caller stores once
// it is established. The part is ready while connected.
func measureConnection(set *metric.Set, part *HealthPart) *atomic.Pointer[nats.Conn] {
	conn := new(atomic.Pointer[nats.Conn])
	set.BoolFunc("nats_connected", "1 if connected to NATS, else 0.", func() bool { return part.why() == "" })
	set.CounterFunc("nats_reconnects_total", "Reconnections to NATS.", func() float64 {
		if nc := conn.Load(); nc != nil {
			return float64(nc.Stats().Reconnects)
		}
		return 0
	})
	return conn
}

// ConsumerHealth adds the part for a consumer. The returned function must be called at each change
// between readable (nil) and not readable. A missing consumer is normal at startup.
func (rt *Runtime) ConsumerHealth(part string) func(error) {
	state := rt.Health.Part(part)
	failed := false
	return func(err error) {
		if err == nil {
			state.Ready()
		} else {
			state.NotReady("cannot read messages from NATS")
		}
		log := rt.Log.With().Str("part", part).Logger()
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
			log.Info().Msg("waiting for the watcher or the setup job to create the streams")
		case err != nil:
			log.Warn().Err(err).Msg("cannot read messages from NATS, retrying")
		case failed:
			log.Info().Msg("reading messages again")
		}
		failed = err != nil
	}
}
