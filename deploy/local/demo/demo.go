// Package demo shows the whole of curl-me-that at work with what is on this
// machine: a server of jokes, and the two sample ConfigMaps.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
)

// Config of the demo.
type Config struct {
	// Samples is the folder with the two sample ConfigMaps.
	Samples string
	// Once ends the demo after it has shown everything.
	Once bool
	// Out is where it shows it.
	Out io.Writer
}

const (
	validSample   = "config-map-valid.yaml"
	invalidSample = "config-map-invalid.yaml"
	namespace     = metav1.NamespaceDefault
	// waitMax is how long data and Event may take; they take milliseconds.
	waitMax = 15 * time.Second
)

// Run starts everything, shows it, and goes on until ctx is done.
func Run(ctx context.Context, c Config, system local.Config) error {
	valid, err := readSample(filepath.Join(c.Samples, validSample))
	if err != nil {
		return err
	}
	invalid, err := readSample(filepath.Join(c.Samples, invalidSample))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, err := serveJokes(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "A server of jokes runs on http://%s/joke\n", jokeAddress)
	err = local.Run(ctx, system, c.Out, func(ctx context.Context, s local.System) error {
		d := &presentation{Config: c, system: s}
		if err := d.run(ctx, valid, invalid); err != nil {
			return err
		}
		if c.Once {
			cancel()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		}
	})
	return err
}

func readSample(path string) (*corev1.ConfigMap, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the sample ConfigMap (--samples names their folder): %w", err)
	}
	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &cm); err != nil {
		return nil, fmt.Errorf("read the sample ConfigMap %s: %w", path, err)
	}
	return &cm, nil
}

// presentation is one run of the demo.
type presentation struct {
	Config
	system  local.System
	client  kubernetes.Interface
	kubectl string
}

func (d *presentation) run(ctx context.Context, valid, invalid *corev1.ConfigMap) error {
	config, err := clientcmd.BuildConfigFromFlags("", d.system.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", d.system.Kubeconfig, err)
	}
	if d.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	if d.kubectl, err = findKubectl(ctx, d.Out); err != nil {
		return err
	}
	for _, cm := range []*corev1.ConfigMap{valid, invalid} {
		err := d.client.CoreV1().ConfigMaps(namespace).Delete(ctx, cm.Name, metav1.DeleteOptions{}) // left by an earlier demo
		if err == nil {
			fmt.Fprintf(d.Out, "Removed ConfigMap %s of an earlier demo\n", cm.Name)
		}
	}
	fmt.Fprintln(d.Out)
	if err := d.command(ctx, "apply", "-n", namespace, "-f", filepath.Join(d.Samples, validSample), "-f", filepath.Join(d.Samples, invalidSample)); err != nil {
		return err
	}
	if err := d.waitFor(ctx, "data in ConfigMap "+valid.Name, func(ctx context.Context) (bool, error) {
		cm, err := d.client.CoreV1().ConfigMaps(namespace).Get(ctx, valid.Name, metav1.GetOptions{})
		return err == nil && len(cm.Data) > 0, err
	}); err != nil {
		return err
	}
	if err := d.waitFor(ctx, "an Event for ConfigMap "+invalid.Name, func(ctx context.Context) (bool, error) {
		uid, err := d.uid(ctx, invalid.Name)
		if err != nil {
			return false, err
		}
		events, err := d.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && hasEvent(events.Items, uid), err
	}); err != nil {
		return err
	}
	if err := d.command(ctx, "get", "configmap", "-n", namespace, valid.Name, "-o", "jsonpath={.data.joke}"); err != nil {
		return err
	}
	if err := d.command(ctx, "describe", "configmap", "-n", namespace, invalid.Name); err != nil {
		return err
	}
	d.goodbye()
	return nil
}

func (d *presentation) uid(ctx context.Context, name string) (types.UID, error) {
	cm, err := d.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cm.UID, nil
}

func hasEvent(events []eventsv1.Event, uid types.UID) bool {
	for _, e := range events {
		if e.Regarding.UID == uid {
			return true
		}
	}
	return false
}

func (d *presentation) goodbye() {
	if d.Once {
		return
	}
	fmt.Fprintf(d.Out, `
All of it keeps running. In another terminal:

  export KUBECONFIG=%s
  kubectl create configmap mine
  kubectl annotate configmap mine x-kv8s.io/curl-me-that=joke=http://%s/joke
  kubectl get configmap mine -o yaml

Ctrl-C ends it.
`, d.system.Kubeconfig, jokeAddress)
}

// waitFor asks again and again until what is true, and returns what is missing
// if it takes too long.
func (d *presentation) waitFor(ctx context.Context, what string, isThere func(context.Context) (bool, error)) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		there, err := isThere(ctx)
		if there {
			fmt.Fprintf(d.Out, "There is %s after %s\n", what, time.Since(began).Round(time.Millisecond))
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no %s after %s", what, waitMax), err)
		case <-ticker.C:
		}
	}
}

// command shows a kubectl command and what it prints.
func (d *presentation) command(ctx context.Context, args ...string) error {
	fmt.Fprint(d.Out, "\n$ kubectl")
	for _, a := range args {
		fmt.Fprint(d.Out, " ", a)
	}
	fmt.Fprintln(d.Out)
	cmd := exec.CommandContext(ctx, d.kubectl, args...)
	cmd.Env = append(os.Environ(), clientcmd.RecommendedConfigPathEnvVar+"="+d.system.Kubeconfig)
	cmd.Stdout, cmd.Stderr = d.Out, d.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run kubectl %s: %w", args[0], err)
	}
	return nil
}

// findKubectl returns a kubectl: the one in PATH, or the one that was built
// with the local control plane.
func findKubectl(ctx context.Context, progress io.Writer) (string, error) {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path, nil
	}
	binaries, err := assets.Find(ctx, progress)
	if err != nil {
		return "", err
	}
	return binaries.Kubectl(), nil
}
