// Package local runs the whole of curl-me-that in one process: an embedded
// NATS, the three services over connections of their own, and, where no
// cluster is given, a real etcd and kube-apiserver beside it.
package local

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/broker"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/writer"
)

// stopTimeout bounds the end of each part that is not a service; services
// bound their own drain.
const stopTimeout = 10 * time.Second

// embeddedURL stands for the broker in this process in logs.
const embeddedURL = "nats://embedded"

// System is what runs.
type System struct {
	// Kubeconfig names the cluster's kubeconfig file.
	Kubeconfig string
	// NATS is the address of the broker for other programs; empty: none.
	NATS string
	// Local reports that the control plane is our own.
	Local bool
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
	dir, remove, err := c.openDataDir()
	if err != nil {
		return err
	}
	defer remove()

	system := System{Kubeconfig: c.ClusterKubeconfig()}
	plane, err := c.controlPlane(ctx, &system, filepath.Join(dir, "control-plane"), progress)
	if err != nil {
		return err
	}
	if plane != nil {
		defer stop(ctx, &err, plane.Stop)
	}
	kube.BridgeKlog(log.Level(max(zerolog.WarnLevel, log.GetLevel())))

	nats, err := broker.Start(broker.Options{Dir: filepath.Join(dir, "nats"), Listen: c.NATSListen, Log: log})
	if err != nil {
		return err
	}
	defer stop(ctx, &err, nats.Stop)
	system.NATS = nats.URL()
	return c.serve(ctx, log, nats, plane, system, ready)
}

// stop ends a part, also when ctx is done, and keeps its error if there is none
// yet.
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
func (c *Config) controlPlane(ctx context.Context, system *System, dir string, progress io.Writer) (*controlplane.ControlPlane, error) {
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
	system.Kubeconfig, system.Local = plane.Kubeconfig(), true
	c.Watcher.Kube.Kubeconfig, c.Watcher.Kube.Context = plane.Kubeconfig(), ""
	return plane, nil
}

// serve runs the three services until ctx is done or one fails.
func (c *Config) serve(ctx context.Context, log zerolog.Logger, nats *broker.Broker, plane *controlplane.ControlPlane, system System,
	ready func(context.Context, System) error,
) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	health := service.NewHealth()
	group, ctx := errgroup.WithContext(ctx)
	if c.Listen != "" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		group.Go(func() error { return service.Serve(ctx, listener, service.Handler(health, registry)) })
	}
	if plane != nil {
		group.Go(func() error {
			select {
			case <-plane.Failed():
				return plane.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	var begun atomic.Int32
	services := c.services()
	assembled := health.Part("assembled")
	for name, run := range services {
		cluster, err := c.Watcher.Kube.Config(name)
		if err != nil {
			return err
		}
		tracer, flush := c.tracer(ctx, name, log)
		host := service.Host{
			Tracer: tracer,
			Log:    log.With().Str("service", name).Logger(), Health: health.Group(name),
			Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": name}, registry), // two of them watch Kubernetes
			NATS:    service.NATSOptions{URL: embeddedURL, Dial: nats.Dial()},
		}
		group.Go(func() error {
			defer flush()
			err := host.Run(ctx, name, func(ctx context.Context, rt *service.Runtime) error {
				if int(begun.Add(1)) == len(services) {
					assembled.Ready()
				}
				return run(ctx, rt, cluster)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	group.Go(func() error { return whenReady(ctx, health, func() error { return ready(ctx, system) }) })
	return group.Wait()
}

func (c *Config) services() map[string]func(context.Context, *service.Runtime, *rest.Config) error {
	return map[string]func(context.Context, *service.Runtime, *rest.Config) error{
		"watcher": func(ctx context.Context, rt *service.Runtime, cluster *rest.Config) error {
			return watcher.Run(ctx, rt, c.Watcher, cluster)
		},
		"fetcher": func(ctx context.Context, rt *service.Runtime, _ *rest.Config) error {
			return fetcher.Run(ctx, rt, c.Fetcher)
		},
		"writer": func(ctx context.Context, rt *service.Runtime, cluster *rest.Config) error {
			return writer.Run(ctx, rt, c.Writer, cluster)
		},
	}
}

func whenReady(ctx context.Context, health *service.Health, then func() error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !health.Ready() {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	return then()
}
