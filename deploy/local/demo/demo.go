// Package demo shows curl-me-that at work in chapters: a ConfigMap is filled, another
// one is invalid, a host is down and comes back, and a Watcher gets a ConfigMap.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/proto/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Config configures the demo.
type Config struct {
	// Samples is the folder with the sample ConfigMaps.
	Samples string
	// Host is the name where the web servers of the demo listen and fetchers reach them.
	Host string
	// Installed uses the installation in the cluster of the kubeconfig, with the NATS of
	// CURLMETHAT_NATS_*.
	Installed bool
	// Once ends the demo after the last chapter.
	Once bool
	// Out receives the output.
	Out io.Writer
	// Program is how this program was started.
	Program string
	// Console is the command that opens the console of the installation. If it is empty, this
	// program opens it.
	Console string
}

const (
	// attempts and firstRetry let the fetcher of the demo give up within seconds.
	attempts   = 3
	firstRetry = 250 * time.Millisecond
	// writeTimeout limits the wait for data and Events, which take milliseconds.
	writeTimeout = 15 * time.Second
	// giveUpTimeout limits the wait for six attempts of a fetcher with default flags.
	giveUpTimeout = 3 * time.Minute
)

// Run starts everything, runs the chapters, and keeps everything running until ctx is done.
func Run(ctx context.Context, c Config, system local.Config) error {
	samples, err := readSamples(c.Samples, c.Host)
	if err != nil {
		return err
	}
	given := system.Watcher.Kube.Kubeconfig != ""
	switch {
	case c.Installed:
	case given:
		if err := checkCluster(ctx, system.Watcher.Kube); err != nil {
			return fmt.Errorf("use the cluster of --kubeconfig (without it, the demo starts its own): %w", err)
		}
	default: // KUBECONFIG is often that of a real cluster, which a demo must not change
		if err := os.Unsetenv(clientcmd.RecommendedConfigPathEnvVar); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, ctx := errgroup.WithContext(ctx)
	d := &demo{Config: c, samples: samples, serving: serving, kube: system.Watcher.Kube}
	if err := d.tryPort(ctx, downPort); err != nil {
		return err
	}
	if err := d.serve(ctx, jokePort); err != nil {
		return err
	}
	through := func(ctx context.Context, running local.System) error {
		if !given && !c.Installed {
			d.useOwn(running.Kubeconfig)
		}
		if err := d.run(ctx, running); err != nil {
			return err
		}
		if c.Once {
			cancel()
			return nil
		}
		return d.openConsole(ctx)
	}
	if c.Installed {
		err = through(ctx, local.System{Kubeconfig: system.Watcher.Kube.File()})
	} else {
		system.Fetcher.Engine.MaxAttempts, system.Fetcher.Engine.Retry.Base = attempts, firstRetry
		err = local.Run(ctx, system, c.Out, through)
	}
	cancel()
	return cmp.Or(serving.Wait(), err) // a failed web server ends all else
}

// useOwn uses the control plane of the demo. A context of --kube-context is in the user's kubeconfig only.
func (d *demo) useOwn(kubeconfig string) { d.kube.Kubeconfig, d.kube.Context = kubeconfig, "" }

// checkCluster returns why the cluster cannot be used, because services would wait for it without end.
func checkCluster(ctx context.Context, cluster kube.Options) error {
	config, err := cluster.UserConfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return controlplane.Ready(ctx, config)
}

// demo is one run of the demo.
type demo struct {
	Config
	samples samples
	serving *errgroup.Group // web servers
	system  local.System
	kube    kube.Options
	client  corev1client.CoreV1Interface
	// watchers is the API of the Watchers of the namespace.
	watchers *watchv1.Namespaced
}

// chapter is one part of the demo.
type chapter struct {
	title string
	run   func(ctx context.Context, d *demo) error
}

// chapters returns the chapters in order. Each depends on the previous ones.
func chapters() []chapter {
	return []chapter{
		{"A ConfigMap asks for a URL, and gets its data", filled},
		{"Another ConfigMap has an invalid annotation, and an Event explains it", explained},
		{"A host is down, and operators see the failure", hostDown},
		{"The host is back, and the failure is replayed", replayed},
		{"A Watcher creates a ConfigMap, and reports its state", watched},
	}
}

func (d *demo) run(ctx context.Context, running local.System) error {
	d.system = running
	config, err := d.kube.UserConfig()
	if err != nil {
		return err
	}
	if d.client, err = corev1client.NewForConfig(config); err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	watchers, err := watchv1.NewClient(config, nil)
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	d.watchers = watchers.In(namespace)
	if err := d.removeEarlier(ctx); err != nil {
		return err
	}
	for i, c := range chapters() {
		fmt.Fprintf(d.Out, "\n%d. %s\n\n", i+1, c.title)
		if err := c.run(ctx, d); err != nil {
			return cmp.Or(context.Cause(ctx), err) // Ctrl-C also ends curlctl and every wait
		}
	}
	d.goodbye()
	return nil
}

func (d *demo) goodbye() {
	if d.Once {
		fmt.Fprintf(d.Out, "\nTo see the same in a browser:\n\n$ %s\n", d.consoleCommand())
		return
	}
	kubectl := "kubectl"
	if path, ok := controlplane.Kubectl(); ok {
		kubectl = path
	} else {
		fmt.Fprint(d.Out, "\nkubectl is not installed. Install any version.\n")
	}
	fmt.Fprintf(d.Out, `
Everything keeps running. Try it in another terminal:

  export KUBECONFIG=%s
  kubectl=%s
  $kubectl create configmap mine
  $kubectl annotate configmap mine x-kv8s.io/curl-me-that=joke=%s
  $kubectl get configmap mine -o yaml

Press Ctrl-C to end the demo and its console. Open the console in a browser:

`, d.system.Kubeconfig, kubectl, d.url(jokePort, jokePath))
}

// consoleCommand returns the command that opens the console after this demo. If nothing is installed, that is a
// demo that keeps running.
func (d *demo) consoleCommand() string {
	if d.Installed {
		return cmp.Or(d.Console, d.Program+" ctl console")
	}
	return d.Program + " demo"
}

// openConsole prints the address of the console and serves it until ctx is done. If the console fails, the demo goes
// on without it.
func (d *demo) openConsole(ctx context.Context) error {
	if err := d.curlctl(ctx, d.Out, "console"); err != nil && ctx.Err() == nil {
		fmt.Fprintln(d.Out, err)
	}
	<-ctx.Done()
	return nil
}

// waitFor waits until a condition is met, and prints it with the time that it took.
func (d *demo) waitFor(ctx context.Context, timeout time.Duration, what string,
	met func(context.Context) (bool, error),
) error {
	began := time.Now()
	var last error
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, timeout, true,
		func(ctx context.Context) (done bool, _ error) {
			done, last = met(ctx)
			return done, nil
		})
	if err != nil {
		return errors.Join(fmt.Errorf("waited %s for: %s", timeout, what), last)
	}
	fmt.Fprintf(d.Out, "%s after %s:\n\n", what, time.Since(began).Round(time.Millisecond))
	return nil
}
