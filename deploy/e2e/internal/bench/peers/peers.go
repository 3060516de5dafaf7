// Package peers fills annotated ConfigMaps by this pipeline and by a controller
// that is written as most are, each with its defaults.
package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	// dataKey is the key that is filled.
	dataKey = "mydata"
	// faster is how many times as many ConfigMaps those have that need no second for
	// five of them.
	faster = 20
	// stall is how long nothing may be filled, and removal how long all may take to
	// be removed.
	stall   = 3 * time.Minute
	removal = 5 * time.Minute
)

// Options of a measurement.
type Options struct {
	// Bin is the folder with the services.
	Bin string
	// ConfigMaps for the slowest.
	ConfigMaps int
}

// Row is one peer.
type Row struct {
	Peer       string  `json:"peer"`
	ConfigMaps int     `json:"configMaps"`
	PerSecond  float64 `json:"perSecond"`
}

// Rows are the peers, the slowest first.
type Rows []Row

// peer fills the ConfigMaps of a namespace from start on.
type peer struct {
	name  string
	count int
	start func(ctx context.Context, namespace string) (stop func() error, err error)
}

// Run measures one after another.
func Run(ctx context.Context, o Options, progress func(string, ...any)) (rows Rows, err error) {
	c, err := cluster.Connect()
	if err != nil {
		return nil, err
	}
	for _, p := range []peer{
		{"one worker, client-go as it comes (5 requests a second)", o.ConfigMaps, plain(0)},
		{"one worker, client-go without its limit", faster * o.ConfigMaps, plain(-1)},
		{"curl-me-that", faster * o.ConfigMaps, o.ours},
	} {
		row, err := p.measure(ctx, c)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p.name, err)
		}
		progress("%s: %.1f/s", p.name, row.PerSecond)
		rows = append(rows, row)
	}
	return rows, nil
}

// measure creates the ConfigMaps beside a peer that runs, and waits until all are
// filled.
func (p peer) measure(ctx context.Context, c *cluster.Cluster) (row Row, err error) {
	row = Row{Peer: p.name, ConfigMaps: p.count}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	namespace, err := c.NewNamespace(ctx)
	if err != nil {
		return row, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
		defer cancel()
		err = errors.Join(err, namespace.Remove(ctx))
	}()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, "the body of ", r.URL.Path) //nolint:gosec // G705: no browser asks this
	}))
	defer host.Close()
	stop, err := p.start(ctx, namespace.Name)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- awaitFilled(ctx, c, namespace.Name, p.count) }()
	err = namespace.Fill(ctx, p.count, func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("configmap-", i), Annotations: map[string]string{annotation.DefaultKey: fmt.Sprintf("%s=%s/%d", dataKey, host.URL, i)},
		}}
	})
	if err != nil {
		return row, err
	}
	err = <-done
	row.PerSecond = float64(p.count) / time.Since(began).Seconds()
	return row, err
}

// awaitFilled returns when so many ConfigMaps have their key.
func awaitFilled(ctx context.Context, c *cluster.Cluster, namespace string, count int) error {
	w, err := c.Kubernetes.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch ConfigMaps: %w", err)
	}
	defer w.Stop()
	filled := map[string]struct{}{}
	for len(filled) < count {
		select {
		case event, open := <-w.ResultChan():
			object, is := event.Object.(*corev1.ConfigMap)
			if !open || !is {
				return fmt.Errorf("the watch of ConfigMaps ended: %v", event.Object)
			}
			if object.Data[dataKey] != "" {
				filled[object.Name] = struct{}{}
			}
		case <-time.After(stall):
			return fmt.Errorf("%d of %d ConfigMaps were filled, and none for %s", len(filled), count, stall)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ours starts NATS and the services with their defaults.
func (o Options) ours(ctx context.Context, namespace string) (stop func() error, err error) {
	s, err := system.Start(ctx, system.Options{Bin: o.Bin, Namespace: namespace, Limits: true})
	if err != nil {
		return nil, err
	}
	return func() error { return s.Stop(ctx) }, nil
}

// WriteTable writes the rows as Markdown.
func (rows Rows) WriteTable(w io.Writer) error {
	t := markdown.New("filled by", "ConfigMaps", "a second", "÷ the first")
	for _, r := range rows {
		t.Row(r.Peer, "%d | %.1f | %.0f", r.ConfigMaps, r.PerSecond, r.PerSecond/rows[0].PerSecond)
	}
	return t.Write(w)
}
