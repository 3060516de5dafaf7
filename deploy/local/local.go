// Package local runs all of curl-me-that in one process: an embedded NATS, the services
// with a connection each, and a real etcd and kube-apiserver unless a cluster is given.
package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/broker"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/writer"
)

// stopTimeout is the time limit to stop a part. Services have their own limit.
const stopTimeout = 10 * time.Second

// embeddedURL stands for the broker in this process in logs.
const embeddedURL = "nats://embedded"

// System describes the running system.
type System struct {
	// Kubeconfig names the cluster's kubeconfig file.
	Kubeconfig string
	// NATS is the address of the broker for other programs, if any.
	NATS string
}

// Run runs everything until ctx is done, or a part fails. It calls ready once
// all parts work, and ends when that returns an error.
func Run(ctx context.Context, c Config, progress io.Writer, ready func(context.Context, System) error) (err error) {
	if c.Output == nil {
		c.Output = os.Stderr
	}
	log, err := c.Log.New(c.Output, "")
	if err != nil {
		return err
	}
	dir, closeDir, err := c.openDataDir()
	if err != nil {
		return err
	}
	defer closeDir()

	system := System{Kubeconfig: c.ClusterKubeconfig()}
	plane, err := c.controlPlane(ctx, &system, filepath.Join(dir, "control-plane"), progress)
	if err != nil {
		return err
	}
	if plane != nil {
		defer stop(ctx, &err, plane.Stop)
	}
	if c.Watcher.SigningKey, c.Writer.TrustedKeys, err = signature.WriteFiles(dir); err != nil {
		return err
	}
	c.Fetcher.TrustedKeys = c.Writer.TrustedKeys
	kube.BridgeKlog(log.Level(max(zerolog.WarnLevel, log.GetLevel())))

	nats, err := broker.Start(broker.Options{Dir: filepath.Join(dir, "nats"), Listen: c.NATSListen, Log: log})
	if err != nil {
		return err
	}
	defer stop(ctx, &err, nats.Stop)
	system.NATS = nats.URL()
	a := newAssembly(&c, log)
	a.nats, a.plane = nats, plane
	return a.serve(ctx, func(ctx context.Context) error { return ready(ctx, system) })
}

// stop stops a part, also after ctx was cancelled, and keeps the first error.
func stop(ctx context.Context, err *error, part func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if stopErr := part(ctx); *err == nil {
		*err = stopErr
	}
}

// ClusterKubeconfig returns the file that a cluster was given by, or nothing.
func (c *Config) ClusterKubeconfig() string {
	if c.Watcher.Kube.Kubeconfig != "" {
		return c.Watcher.Kube.Kubeconfig
	}
	return os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
}

// controlPlane starts a local one if no cluster was given.
func (c *Config) controlPlane(ctx context.Context, system *System, dir string,
	progress io.Writer,
) (*controlplane.ControlPlane, error) {
	if system.Kubeconfig != "" {
		return nil, nil //nolint:nilnil // a cluster was given
	}
	binaries, err := assets.Find(ctx, assets.Options{Build: c.BuildControlPlane, Progress: progress})
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries, Progress: progress})
	if err != nil {
		return nil, err
	}
	system.Kubeconfig = plane.Kubeconfig()
	c.Watchers, c.ours = true, true
	c.Watcher.Kube.Kubeconfig, c.Watcher.Kube.Context = plane.Kubeconfig(), ""
	return plane, nil
}

// assembly is shared by the services.
type assembly struct {
	config   *Config
	log      zerolog.Logger
	health   *process.Health
	registry *prometheus.Registry
	nats     *broker.Broker
	// plane is our own control plane, or nil.
	plane *controlplane.ControlPlane
}

func newAssembly(c *Config, log zerolog.Logger) *assembly {
	a := &assembly{config: c, log: log, health: process.NewHealth(), registry: prometheus.NewRegistry()}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return a
}

// serve runs the services until ctx is done or one fails.
func (a *assembly) serve(ctx context.Context, ready func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	endpoints, err := a.config.Addresses.Open(a.health, a.registry)
	if err != nil {
		return err
	}
	for _, listen := range endpoints {
		group.Go(func() error { return listen(ctx) })
	}
	if a.plane != nil {
		group.Go(func() error { return a.watchPlane(ctx) })
	}
	var begun atomic.Int32
	services := a.config.services()
	assembled := a.health.Part("assembled")
	for name, run := range services {
		cluster, err := a.config.Watcher.Kube.Config(name)
		if err != nil {
			return err
		}
		group.Go(func() error {
			return a.run(ctx, name, func(ctx context.Context, rt *process.Runtime) error {
				if int(begun.Add(1)) == len(services) {
					assembled.Ready()
				}
				return run(ctx, rt, cluster)
			})
		})
	}
	group.Go(func() error {
		isReady := func(context.Context) (bool, error) { return a.health.Ready(), nil }
		if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, isReady); err != nil {
			return nil //nolint:nilerr // it ended before
		}
		return ready(ctx)
	})
	return group.Wait()
}

// watchPlane returns the error of the control plane when it fails.
func (a *assembly) watchPlane(ctx context.Context) error {
	select {
	case err := <-a.plane.Failed():
		return err
	case <-ctx.Done():
		return nil
	}
}

// run runs one service.
func (a *assembly) run(ctx context.Context, name string, serve func(context.Context, *process.Runtime) error) error {
	tracer, flush := a.config.tracer(ctx, name, a.log)
	defer flush()
	host := process.Host{
		Tracer: tracer,
		Log:    a.log.With().Str("service", name).Logger(), Health: a.health.Group(name),
		// two of them watch Kubernetes
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": name}, a.registry),
		NATS:    process.NATSOptions{URL: embeddedURL, Dial: a.nats.Dial()}, WithoutNATS: name == keeperName,
	}
	if err := host.Run(ctx, name, serve); err != nil {
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
