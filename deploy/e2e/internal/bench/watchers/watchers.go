// Package watchers measures the memory of keeper beside many Watchers.
package watchers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/proto/watch/crd"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

const (
	// calm is how long after the last work keeper is looked at: the runtime of Go
	// returns memory in the background.
	calm = 10 * time.Second
	// polling is how often it is asked how far it is, and serving how often whether
	// the API server serves Watchers.
	polling = 500 * time.Millisecond
)

// Interval of the Watchers that Create makes.
const Interval = "10m"

// Report is what was measured.
type Report struct {
	// Watchers with one source and one static key.
	Watchers int `json:"watchers"`
	// Made is keeper once it has made all ConfigMaps, Started after a start beside
	// them.
	Made    usage.Usage `json:"made"`
	Started usage.Usage `json:"started"`
	// Took is how many seconds it took to make them.
	Took float64 `json:"tookSeconds"`
}

// Options configure the measurement.
type Options struct {
	// Bin is the folder with keeper.
	Bin string
	// Watchers to make.
	Watchers int
}

// Run measures keeper of bin against the cluster of $KUBECONFIG. Nothing fetches
// meanwhile, so that sources stay pending.
func Run(ctx context.Context, o Options, progress func(string, ...any)) (report Report, err error) {
	report.Watchers = o.Watchers
	c, err := cluster.Connect()
	if err != nil {
		return report, err
	}
	namespace, err := c.NewNamespace(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, namespace.Remove(context.WithoutCancel(ctx))) }()
	progress("creating %d Watchers", o.Watchers)
	remove, err := Create(ctx, namespace.Name, o.Watchers, func(i int) string {
		return fmt.Sprintf("https://rules.example.com/v2/%d?team=a", i)
	})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	began := time.Now()
	report.Made, err = o.measure(ctx, namespace.Name, "curlmethat_keeper_status_patches_total")
	if err != nil {
		return report, err
	}
	report.Took = (time.Since(began) - calm).Seconds()
	progress("made: %d MiB; starting keeper again", report.Made.RSS>>20)
	report.Started, err = o.measure(ctx, namespace.Name, "workqueue_work_duration_seconds_count")
	return report, err
}

// measure starts keeper, waits until a metric counts all Watchers and a while longer,
// and returns what it uses.
func (o Options) measure(ctx context.Context, namespace, metric string) (u usage.Usage, err error) {
	k, err := StartKeeper(o.Bin, namespace)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, k.Stop(context.WithoutCancel(ctx))) }()
	if err := k.Await(ctx, metric, o.Watchers); err != nil {
		return u, err
	}
	if err := system.Pause(ctx, calm); err != nil {
		return u, err
	}
	return k.Usage()
}

// Create creates Watchers in a namespace, each with one static key and one source of
// which url is the URL, and returns what removes them.
func Create(ctx context.Context, namespace string, count int, url func(i int) string) (remove func(context.Context) error, err error) {
	client, err := serve(ctx)
	if err != nil {
		return nil, err
	}
	watchers := client.Resource(watchv1.Resource()).Namespace(namespace)
	remove = func(ctx context.Context) error {
		return watchers.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	return remove, cluster.InParallel(ctx, count, func(ctx context.Context, i int) error {
		_, err := watchers.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": watchv1.GroupVersion().String(), "kind": watchv1.Kind, "metadata": map[string]any{"name": fmt.Sprintf("watcher-%05d", i)},
			"spec": map[string]any{
				"interval": Interval, "configData": map[string]any{"LEVEL": "warn"},
				"sources": []any{map[string]any{"key": "rules.json", "url": url(i)}},
			},
		}}, metav1.CreateOptions{})
		return err
	})
}

// serve lets the API server serve Watchers, and waits until it does.
func serve(ctx context.Context) (dynamic.Interface, error) {
	config, err := (&kube.Options{}).Config("bench")
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	definition, err := access.Decode(crd.Watchers)
	if err != nil {
		return nil, err
	}
	definitions, err := access.NewApplier(config, manifest.Manager)
	if err != nil {
		return nil, err
	}
	if err := definitions.Apply(ctx, "", definition...); err != nil {
		return nil, err
	}
	for {
		if _, err = client.Resource(watchv1.Resource()).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return client, nil
		}
		if err := system.Pause(ctx, polling); err != nil {
			return nil, err
		}
	}
}

// Keeper is the program that is measured.
type Keeper struct {
	process *process.Process
	address string
}

// StartKeeper starts keeper of bin for one namespace.
func StartKeeper(bin, namespace string) (*Keeper, error) {
	address, err := process.NewPorts().Free()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Program{
		Name: "keeper", Path: filepath.Join(bin, "keeper"), Args: []string{"--namespaces=" + namespace, "--listen=" + address}, Env: os.Environ(),
	})
	return &Keeper{p, address}, err
}

// Await waits until a metric, its samples in all, is at least so much.
func (k *Keeper) Await(ctx context.Context, name string, value int) error {
	for {
		if !k.process.Running() {
			return fmt.Errorf("keeper has ended; its last line: %s", k.process.Log.Last())
		}
		if text, _, err := process.Get(ctx, "http://"+k.address+"/metrics"); err == nil && metric(text, name) >= value {
			return nil
		}
		if err := system.Pause(ctx, polling); err != nil {
			return err
		}
	}
}

// Usage returns what it uses.
func (k *Keeper) Usage() (usage.Usage, error) { return usage.Of(k.process.PID()) }

// Stop stops it.
func (k *Keeper) Stop(ctx context.Context) error {
	_, err := k.process.Stop(ctx)
	return err
}

// metric sums the samples of a metric up.
func metric(text, name string) int {
	sum := 0.0
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, name); is && (rest[0] == ' ' || rest[0] == '{') {
			var value float64
			if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &value); err == nil {
				sum += value
			}
		}
	}
	return int(sum)
}

// WriteTable writes the report as Markdown.
func (r Report) WriteTable(w io.Writer) error {
	t := markdown.New(fmt.Sprintf("keeper beside %d Watchers", r.Watchers), "RSS, MiB", "peak, MiB")
	row := func(name string, u usage.Usage) {
		t.Row(name, "%.1f | %.1f", float64(u.RSS)/(1<<20), float64(u.PeakRSS)/(1<<20))
	}
	row(fmt.Sprintf("once it has made all ConfigMaps, in %.0f s", r.Took), r.Made)
	row("after a start beside them", r.Started)
	return t.Write(w)
}
