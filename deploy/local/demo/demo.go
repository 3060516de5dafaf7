// Package demo is the whole of curl-me-that at work, as a story in chapters: a
// ConfigMap is filled, another one is wrong, a host is down and comes back, and a
// Watcher gets a ConfigMap.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
)

// Config of the demo.
type Config struct {
	// Samples is the folder with the sample ConfigMaps.
	Samples string
	// Host is the name at which the demo's web servers listen, and by which fetchers
	// reach them.
	Host string
	// Installed is for an installation that runs already: that of the cluster of the
	// kubeconfig, with the NATS that the variables CURLMETHAT_NATS_* name.
	Installed bool
	// Once ends the demo after the last chapter.
	Once bool
	// Out is where the story is printed.
	Out io.Writer
	// Program is how this one was started.
	Program string
	// Console is the command that opens the console of what is installed; empty: that
	// of this program.
	Console string
}

const (
	// attempts and firstRetry of the demo's own fetcher, so that no one waits a
	// minute for it to give up.
	attempts   = 3
	firstRetry = 250 * time.Millisecond
	// writeTimeout is how long data and Event may take; they take milliseconds.
	writeTimeout = 15 * time.Second
	// giveUpTimeout is for the six attempts of a fetcher with its defaults.
	giveUpTimeout = 3 * time.Minute
)

// Run starts everything, goes through the chapters, and leaves it running until
// ctx is done.
func Run(ctx context.Context, c Config, system local.Config) error {
	samples, err := readSamples(c.Samples, c.Host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &demo{Config: c, samples: samples, hosts: &hosts{host: c.Host, failed: make(chan error, 1)}}
	if err := d.hosts.serve(ctx, jokePort); err != nil {
		return err
	}
	through := func(ctx context.Context, running local.System) error {
		if err := d.run(ctx, running); err != nil {
			return err
		}
		if c.Once {
			cancel()
			return nil
		}
		defer d.openConsole(ctx)()
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.hosts.failed:
			return err
		}
	}
	if c.Installed {
		return through(ctx, local.System{Kubeconfig: system.ClusterKubeconfig()})
	}
	system.Fetcher.Engine.MaxAttempts, system.Fetcher.Engine.Retry.Base = attempts, firstRetry
	return local.Run(ctx, system, c.Out, through)
}

// demo is one run of the demo.
type demo struct {
	Config
	samples samples
	hosts   *hosts
	system  local.System
	client  corev1client.CoreV1Interface
}

// chapter is one part of the story.
type chapter struct {
	title string
	run   func(ctx context.Context, d *demo) error
}

// chapters in their order. Each leaves behind what the next one begins with.
func chapters() []chapter {
	return []chapter{
		{"A ConfigMap asks for a page, and is filled", filled},
		{"Another one asks for what is no URL, and an Event explains it", explained},
		{"A host is down, and the failure is in the operator's list", hostDown},
		{"The host is back, and the failure is replayed", replayed},
		{"A Watcher has a ConfigMap of its own, and conditions", watched},
	}
}

func (d *demo) run(ctx context.Context, running local.System) error {
	d.system = running
	config, err := clientcmd.BuildConfigFromFlags("", running.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", running.Kubeconfig, err)
	}
	if d.client, err = corev1client.NewForConfig(config); err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	if err := d.removeEarlier(ctx); err != nil {
		return err
	}
	for i, c := range chapters() {
		fmt.Fprintf(d.Out, "\n%d. %s\n\n", i+1, c.title)
		if err := c.run(ctx, d); err != nil {
			return err
		}
	}
	d.goodbye()
	return nil
}

func (d *demo) goodbye() {
	if d.Once {
		fmt.Fprintf(d.Out, "\nThe same as web pages:\n\n$ %s\n", d.consoleCommand())
		return
	}
	kubectl := "kubectl"
	if path, ok := assets.Kubectl(); ok {
		kubectl = path
	} else {
		fmt.Fprint(d.Out, "\nThere is no kubectl on this machine; with one of any version:\n")
	}
	fmt.Fprintf(d.Out, `
All of it keeps running. In another terminal:

  export KUBECONFIG=%s
  kubectl=%s
  $kubectl create configmap mine
  $kubectl annotate configmap mine x-kv8s.io/curl-me-that=joke=%s
  $kubectl get configmap mine -o yaml

Ctrl-C ends it, and the console, which is for a browser.

`, d.system.Kubeconfig, kubectl, d.hosts.url(jokePort, jokePath))
}

// consoleCommand opens the console when this demo has ended: where nothing is
// installed, another one that stays.
func (d *demo) consoleCommand() string {
	if d.Installed {
		return cmp.Or(d.Console, d.Program+" ctl console")
	}
	return d.Program + " demo"
}

// openConsole serves the console until stop is called; it prints where.
func (d *demo) openConsole(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := d.operate(ctx, d.Out, "console"); err != nil && ctx.Err() == nil {
			fmt.Fprintln(d.Out, err)
		}
	}()
	return func() { cancel(); <-ended }
}

// waitFor waits until isThere reports so, and prints what is; the error names it when
// that takes too long.
func (d *demo) waitFor(ctx context.Context, timeout time.Duration, what string, isThere func(context.Context) (bool, error)) error {
	began := time.Now()
	var last error
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, timeout, true, func(ctx context.Context) (there bool, _ error) {
		there, last = isThere(ctx)
		return there, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("there is not: %s after %s", what, timeout), last)
	}
	fmt.Fprintf(d.Out, "%s after %s:\n\n", what, time.Since(began).Round(time.Millisecond))
	return nil
}
