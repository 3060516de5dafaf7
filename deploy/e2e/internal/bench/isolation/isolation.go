// Package isolation measures how long an ordinary key waits while another
// namespace does what could hold it up.
package isolation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	// ordinaryKeys are created one after another, with and without the hostile
	// tenant.
	ordinaryKeys = 10
	// spacing is between two of them, since what holds one up comes and goes.
	spacing = time.Second
	// longest is when an ordinary key is no longer waited for.
	longest = 2 * time.Minute
	// polling is how often an ordinary ConfigMap is read.
	polling = 10 * time.Millisecond
	// A wait is isolated when it is at most maxRatio times as long, or maxMore
	// longer.
	maxRatio = 2
	maxMore  = 5 * time.Second
	// stopTimeout is for removing all.
	stopTimeout = 5 * time.Minute
)

// Options configure the measurement.
type Options struct {
	// Bin is the folder with the services.
	Bin string
	// Part of the hostile tenants' size, above 0 to 1.
	Part float64
}

// Row is the result for one hostile tenant.
type Row struct {
	// Hole is the number of the fault that the tenant aims at, and Tenant what
	// it does.
	Hole   int    `json:"hole"`
	Tenant string `json:"tenant"`
	// Without and With are the longest waits of an ordinary key, in seconds;
	// GaveUp: with the tenant, one was not filled in that time.
	Without float64 `json:"withoutSeconds"`
	With    float64 `json:"withSeconds"`
	GaveUp  bool    `json:"gaveUp"`
}

// isolated reports whether the tenant has held up no other.
func (r Row) isolated() bool {
	return !r.GaveUp && (r.With <= maxRatio*r.Without || r.With-r.Without <= maxMore.Seconds())
}

// Rows are the tenants that were measured.
type Rows []Row

// Run measures each hostile tenant with services of its own.
func Run(ctx context.Context, o Options, progress func(format string, arguments ...any)) (Rows, error) {
	c, err := cluster.Connect()
	if err != nil {
		return nil, err
	}
	var rows Rows
	for _, t := range tenants() {
		progress("hole %d: %s", t.hole, t.name)
		row, err := measure(ctx, c, o, t)
		if err != nil {
			return rows, fmt.Errorf("measure %q: %w", t.name, err)
		}
		progress("  without %.2f s, with %.2f s", row.Without, row.With)
		rows = append(rows, row)
	}
	return rows, nil
}

// stage is what one hostile tenant is measured on.
type stage struct {
	cluster           *cluster.Cluster
	origin            *origin.Server
	hostile, ordinary *cluster.Namespace
	system            *system.System
}

func measure(ctx context.Context, c *cluster.Cluster, o Options, t tenant) (row Row, err error) {
	s := &stage{cluster: c, origin: origin.Start(behave)}
	defer func() { err = errors.Join(err, s.strike(ctx)) }()
	if err := s.build(ctx, o); err != nil {
		return row, err
	}
	row = Row{Hole: t.hole, Tenant: t.name}
	without, _, err := s.longestWait(ctx, "before", t)
	if err != nil {
		return row, err
	}
	if err := s.hostile.Fill(ctx, max(1, int(float64(t.count)*o.Part)), func(i int) *corev1.ConfigMap { return t.object(s.origin, i) }); err != nil {
		return row, err
	}
	if err := system.Pause(ctx, t.warmUp); err != nil {
		return row, err
	}
	with, gaveUp, err := s.longestWait(ctx, "beside", t)
	row.Without, row.With, row.GaveUp = without.Seconds(), with.Seconds(), gaveUp
	return row, err
}

func (s *stage) build(ctx context.Context, o Options) (err error) {
	if s.hostile, err = s.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	if s.ordinary, err = s.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	s.system, err = system.Start(ctx, system.Options{Bin: o.Bin, Namespace: s.hostile.Name + "," + s.ordinary.Name, Limits: true})
	return err
}

// strike removes all.
func (s *stage) strike(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	if s.system != nil {
		errs = append(errs, s.system.Stop(ctx))
	}
	for _, n := range []*cluster.Namespace{s.hostile, s.ordinary} {
		if n != nil {
			errs = append(errs, n.Remove(ctx))
		}
	}
	s.origin.Close()
	return errors.Join(errs...)
}

// longestWait creates ordinary ConfigMaps one after another. It gives up with
// the first that is not filled in time.
func (s *stage) longestWait(ctx context.Context, kind string, t tenant) (most time.Duration, gaveUp bool, err error) {
	for i := range ordinaryKeys {
		if err := system.Pause(ctx, spacing); err != nil {
			return most, false, err
		}
		name := fmt.Sprintf("%s-%d", kind, i)
		wait, err := s.wait(ctx, name, t.ordinaryURL(s.origin, name))
		most = max(most, wait)
		if errors.Is(err, context.DeadlineExceeded) {
			return most, true, nil
		}
		if err != nil {
			return most, false, err
		}
	}
	return most, false, nil
}

// wait creates a ConfigMap and waits until it has its data. The error is
// context.DeadlineExceeded when that takes too long.
func (s *stage) wait(ctx context.Context, name, url string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	client := s.cluster.Kubernetes.CoreV1().ConfigMaps(s.ordinary.Name)
	began := time.Now()
	if _, err := client.Create(ctx, asking(name, "mydata="+url), metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create a ConfigMap: %w", err)
	}
	for {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil && ctx.Err() == nil {
			return 0, fmt.Errorf("read a ConfigMap: %w", err)
		}
		if err == nil && object.Data["mydata"] != "" {
			return time.Since(began), nil
		}
		if err := system.Pause(ctx, polling); err != nil {
			return time.Since(began), errors.Join(err, s.system.Err())
		}
	}
}

func asking(name, pairs string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{annotation.DefaultKey: pairs},
	}}
}
