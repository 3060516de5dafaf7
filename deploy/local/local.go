// Package local runs all of curl-me-that in one process: an embedded NATS and all services. Unless a cluster
// is given, it also starts a real etcd and kube-apiserver.
package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/writer"
)

// stopTimeout is the time limit to stop a part. Services have their own limit.
const stopTimeout = 10 * time.Second

// slowStart is longer than a normal start, with keeper and its cache.
const slowStart = 15 * time.Second

// embeddedURL is how logs name the broker in this process.
const embeddedURL = "nats://embedded"

// System describes the running system.
type System struct {
	// Kubeconfig is the path of the cluster's kubeconfig.
	Kubeconfig string
	// NATS is the address of the broker for other programs, or empty.
	NATS string
}

// Run runs everything until ctx is done or a part fails. It calls ready once all parts are ready, and returns
// the error of ready, if any.
func Run(ctx context.Context, c Config, progress io.Writer, ready func(context.Context, System) error) (err error) {
	if c.Output == nil {
		c.Output = os.Stderr
	}
	ctx, ended := signal.NotifyContext(ctx, syscall.SIGPIPE) // else a reader that ends leaves the temporary folder
	defer ended()
	log, err := c.Log.New(c.Output, "")
	if err != nil {
		return err
	}
	data, err := controlplane.OpenFolder(c.DataDir, "curl-me-that")
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	defer data.Close()
	if data.Temporary {
		log.Warn().Msgf("everything is kept in %s only until the end (--data-dir)", data.Dir)
	}

	system := System{Kubeconfig: c.Watcher.Kube.File()}
	var failed <-chan error
	if system.Kubeconfig == "" {
		var plane *controlplane.ControlPlane
		if plane, err = c.startControlPlane(ctx, filepath.Join(data.Dir, "control-plane"), progress); err != nil {
			return err
		}
		defer stop(ctx, &err, plane.Stop)
		system.Kubeconfig, failed = plane.Kubeconfig(), plane.Failed()
	}
	if c.Watcher.SigningKey, c.Writer.TrustedKeys, err = signature.WriteFiles(data.Dir); err != nil {
		return err
	}
	c.Fetcher.TrustedKeys = c.Writer.TrustedKeys
	kube.BridgeKlog(log.Level(max(zerolog.WarnLevel, log.GetLevel())))

	broker, err := startBroker(filepath.Join(data.Dir, "nats"), c.NATSListen, log)
	if err != nil {
		return err
	}
	defer broker.WaitForShutdown()
	defer broker.Shutdown()
	if address := broker.Addr(); address != nil {
		system.NATS = "nats://" + address.String()
	}
	if c.ours { // curlctl then needs only the kubeconfig, and finds no address of an earlier run
		if err := controlplane.WriteNATS(system.NATS, system.Kubeconfig); err != nil {
			return err
		}
	}
	a := &assembly{
		config: &c, log: log, health: process.NewHealth(), registry: prometheus.NewRegistry(), broker: broker,
		slowStart: slowStart,
	}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return a.serve(ctx, failed, func(ctx context.Context) error { return ready(ctx, system) })
}

// stop stops a part, also after ctx was cancelled, and keeps the first error.
func stop(ctx context.Context, err *error, part func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if stopErr := part(ctx); *err == nil {
		*err = stopErr
	}
}

// startControlPlane starts our own control plane and lets all services use it.
func (c *Config) startControlPlane(ctx context.Context, dir string, progress io.Writer) (*controlplane.ControlPlane,
	error,
) {
	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Progress: progress})
	if err != nil {
		return nil, err
	}
	c.Watchers, c.ours = true, true
	c.Watcher.Kube.Kubeconfig, c.Watcher.Kube.Context = plane.Kubeconfig(), ""
	return plane, nil
}

// assembly has the parts that all services share.
type assembly struct {
	config   *Config
	log      zerolog.Logger
	health   *process.Health
	registry *prometheus.Registry
	broker   *server.Server
	// slowStart is when the log says which parts are not ready.
	slowStart time.Duration
}

// serve runs the services until ctx is done, or one or the control plane fails.
func (a *assembly) serve(ctx context.Context, failed <-chan error, ready func(context.Context) error) error {
	services, clusters := a.config.services(), map[string]*rest.Config{}
	for name := range services {
		var err error
		if clusters[name], err = a.config.Watcher.Kube.Config(name); err != nil {
			return err
		}
	}
	endpoints, err := a.config.Addresses.Open(a.health, a.registry)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, listen := range endpoints {
		group.Go(func() error { return listen(ctx) })
	}
	group.Go(func() error {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	var begun atomic.Int32
	assembled := a.health.Part("assembled")
	for name, run := range services {
		group.Go(func() error {
			return a.run(ctx, name, func(ctx context.Context, rt *process.Runtime) error {
				if int(begun.Add(1)) == len(services) {
					assembled.Ready()
				}
				return run(ctx, rt, clusters[name])
			})
		})
	}
	group.Go(func() error {
		slow := time.AfterFunc(a.slowStart, a.logUnready)
		defer slow.Stop()
		isReady := func(context.Context) (bool, error) { return a.health.Ready(), nil }
		if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, isReady); err != nil {
			return nil // ctx ended before all parts were ready
		}
		slow.Stop()
		return ready(ctx)
	})
	return group.Wait()
}

// logUnready logs what the start waits for, as an error: the demo hides the warnings of the parts.
func (a *assembly) logUnready() {
	a.log.Error().Strs("parts", a.health.Unready()).
		Msgf("not ready after %s, still trying: --log-level=warn shows the errors", a.slowStart)
}

// run runs one service.
func (a *assembly) run(ctx context.Context, name string, serve func(context.Context, *process.Runtime) error) error {
	tracer, flush := a.config.tracer(ctx, name, a.log)
	defer flush()
	rt := process.Runtime{
		Tracer: tracer,
		Log:    a.log.With().Str("service", name).Logger(), Health: a.health.Group(name),
		// Services share some metrics, such as those of watches.
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": name}, a.registry),
	}
	options := &process.NATSOptions{URL: embeddedURL, Dial: nats.InProcessServer(a.broker)}
	if name == keeperName {
		options = nil
	}
	if err := rt.Run(ctx, name, options, serve); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *Config) services() map[string]func(context.Context, *process.Runtime, *rest.Config) error {
	services := map[string]func(context.Context, *process.Runtime, *rest.Config) error{
		"watcher": func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
			return watcher.Run(ctx, rt, c.Watcher, cluster)
		},
		"fetcher": func(ctx context.Context, rt *process.Runtime, _ *rest.Config) error {
			return fetcher.Run(ctx, rt, c.Fetcher)
		},
		"writer": func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
			return writer.Run(ctx, rt, c.Writer, cluster)
		},
	}
	if c.Watchers || c.Sidecars {
		services[keeperName] = c.runKeeper
	}
	return services
}

// tracer returns the tracer of a service and a function that sends the remaining spans.
func (c *Config) tracer(ctx context.Context, name string, log zerolog.Logger) (*tracing.Tracer, func()) {
	if c.Spans != nil {
		return tracing.New(ctx, name, process.BuildVersion(), c.Spans), func() {}
	}
	tracer := tracing.FromEnv(ctx, name, process.BuildVersion(), log.With().Str("service", name).Logger())
	return tracer, func() { tracer.Shutdown(context.WithoutCancel(ctx)) }
}
