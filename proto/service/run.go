package service

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
)

// Options are the flags that every service has.
type Options struct {
	// Log says what is logged.
	Log LogOptions
	// NATS says how to reach the broker.
	NATS NATSOptions
	// Listen is the address for health and metrics; empty: none.
	Listen string
}

// BindFlags adds the flags of the options; listen is the default address.
func (o *Options) BindFlags(fs *pflag.FlagSet, listen string) {
	o.Log.BindFlags(fs)
	o.NATS.BindFlags(fs)
	fs.StringVar(&o.Listen, "listen", listen, "address for /healthz, /readyz and /metrics; empty: none")
}

const flushTimeout = 2 * time.Second

// Runtime is what a process hands to the service in it.
type Runtime struct {
	// Log is the logger of the service.
	Log zerolog.Logger
	// Health takes the parts of the service.
	Health *Health
	// Metrics takes the metrics of the service.
	Metrics prometheus.Registerer
	// NATS is connected when the service starts.
	NATS *nats.Conn
	// JetStream is the context on that connection.
	JetStream jetstream.JetStream
}

// Run is one process with one service: it sets up logs, health, metrics and
// the connection to NATS, runs the service until ctx is done or the service
// fails, and then closes the connection with all that was published flushed.
//
// While the service drains, /readyz answers 503 and /healthz 200.
func (o *Options) Run(ctx context.Context, name string, serve func(context.Context, *Runtime) error) error {
	log, err := o.Log.New(os.Stderr, name)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(name))
	health := NewHealth()
	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	aside, closeAside := context.WithCancel(groupCtx)
	if o.Listen != "" {
		listener, err := net.Listen("tcp", o.Listen)
		if err != nil {
			closeAside()
			return fmt.Errorf("--listen: %w", err)
		}
		group.Go(func() error { return Serve(aside, listener, Handler(health, registry)) })
	}
	group.Go(func() error {
		defer closeAside()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(groupCtx, cancel)()
		return o.connectAndServe(ctx, name, &Runtime{Log: log, Health: health, Metrics: registry}, serve)
	})
	return group.Wait()
}

func (o *Options) connectAndServe(ctx context.Context, name string, rt *Runtime, serve func(context.Context, *Runtime) error) error {
	rt.Log.Info().Str("version", BuildVersion()).Msg("starting")
	draining := rt.Health.Part("running")
	draining.Ready()
	context.AfterFunc(ctx, func() { draining.NotReady("draining") })

	nc, err := o.NATS.Connect(ctx, name, rt.Log, rt.Health.Part("nats"))
	if err != nil {
		return err
	}
	defer nc.Close()
	rt.NATS = nc
	if rt.JetStream, err = jetstream.New(nc); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if err := serve(ctx, rt); err != nil {
		return err
	}
	if err := nc.FlushTimeout(flushTimeout); err != nil && nc.IsConnected() {
		rt.Log.Warn().Err(err).Msg("not all acknowledgements reached NATS")
	}
	rt.Log.Info().Msg("stopped")
	return nil
}

func buildInfo(name string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "curlmethat_build_info",
		Help:        "Always 1; the labels tell which service and version runs.",
		ConstLabels: prometheus.Labels{"service": name, "version": BuildVersion()},
	}, func() float64 { return 1 })
}
