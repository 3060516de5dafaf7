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
	// Log options.
	Log LogOptions
	// NATS options.
	NATS NATSOptions
	// Addresses to listen on.
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

// Runtime is the environment of a service.
type Runtime struct {
	// Log is the logger of the service.
	Log zerolog.Logger
	// Health of the service.
	Health *Health
	// Metrics of the service.
	Metrics prometheus.Registerer
	// NATS is already connected.
	NATS *nats.Conn
	// JetStream context of the connection.
	JetStream jetstream.JetStream
	// Tracer of the service (nil if tracing is off).
	Tracer *tracing.Tracer

	running *Part
}

// Started must be called when the service has added all its parts to Health. The process is not
// ready before.
func (rt *Runtime) Started() { rt.running.Ready() }

// Run runs one service in a process. It sets up logs, health, metrics and the connection to NATS,
// runs the service until ctx is done or the service fails, flushes published messages, and closes
// the connection.
//
// While the service drains, /readyz responds with 503 and /healthz with 200.
func (o *Options) Run(ctx context.Context, name string, serve func(context.Context, *Runtime) error) error {
	log, err := o.Log.New(os.Stderr, name)
	if err != nil {
		return err
	}
	if !o.WithoutNATS {
		if err := o.NATS.Validate(); err != nil {
			return err
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	health := NewHealth()
	tracer := tracing.FromEnv(ctx, name, BuildVersion(), log)
	defer tracer.Shutdown(context.WithoutCancel(ctx))
	host := SharedRuntime{
		Log: log, Health: health, Metrics: registry, NATS: o.NATS, WithoutNATS: o.WithoutNATS,
		Tracer: tracer, running: health.Part(runningPart),
	}
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
		return host.Run(ctx, name, serve)
	})
	return group.Wait()
}

// SharedRuntime is the shared environment of several services in one process.
type SharedRuntime struct {
	// Log, Health and Metrics are shared.
	Log     zerolog.Logger
	Health  *Health
	Metrics prometheus.Registerer
	// NATS has the connection options. Each service has its own connection.
	NATS NATSOptions
	// WithoutNATS means that the service does not use the broker.
	WithoutNATS bool
	// Tracer is shared (nil if tracing is off).
	Tracer *tracing.Tracer

	running *Part
}

// runningPart is ready from the call of Started until the service drains.
const runningPart = "running"

// Run connects to NATS, runs a service until ctx is done or the service fails, flushes published
// messages, and closes the connection.
func (s SharedRuntime) Run(ctx context.Context, name string, serve func(context.Context, *Runtime) error) error {
	rt := &Runtime{Log: s.Log, Health: s.Health, Metrics: s.Metrics, Tracer: s.Tracer, running: s.running}
	if rt.running == nil {
		rt.running = s.Health.Part(runningPart)
	}
	set := metric.New(s.Metrics, name)
	stopped := context.AfterFunc(ctx, func() { rt.running.NotReady("draining") })
	defer stopped()
	measureBuild(set, name)
	var err error
	if s.WithoutNATS {
		err = serve(ctx, rt)
	} else {
		err = s.connected(ctx, rt, set, name, serve)
	}
	if err == nil {
		rt.Log.Info().Msg("stopped")
	}
	return err
}

// connected runs a service with a connection to NATS.
func (s SharedRuntime) connected(ctx context.Context, rt *Runtime, set *metric.Set, name string,
	serve func(context.Context, *Runtime) error,
) (err error) {
	part := s.Health.Part("nats")
	conn := measureConnection(set, part)
	if rt.NATS, err = s.NATS.Connect(ctx, name, rt.Log, part); err != nil {
		return err
	}
	defer rt.NATS.Close()
	conn.Store(rt.NATS)
	if rt.JetStream, err = jetstream.New(rt.NATS); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if err := serve(ctx, rt); err != nil {
		return err
	}
	if err := rt.NATS.FlushTimeout(flushTimeout); err != nil && rt.NATS.IsConnected() {
		rt.Log.Warn().Err(err).Msg("not all acknowledgements reached NATS")
	}
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
			metric.Of("component", name),
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
func measureConnection(set *metric.Set, part *Part) *atomic.Pointer[nats.Conn] {
	conn := new(atomic.Pointer[nats.Conn])
	set.GaugeFunc("nats_connected", "1 if connected to NATS, else 0.", func() float64 {
		if part.why() == "" {
			return 1
		}
		return 0
	})
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
