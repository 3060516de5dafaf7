// Package bench measures how fast the assembled system fills ConfigMaps, what
// that costs, and what there is to compare it with: the same API server, in the
// same run, patched by nothing but a loop.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/observe"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// cleanTimeout is for deleting all objects, which goes at the pace of the
// creation.
const cleanTimeout = 5 * time.Minute

// mostBare bounds how many ConfigMaps are patched for a ceiling, which takes a few
// seconds then however many there are in a round.
const mostBare = 5000

// Progress prints what is being done.
type Progress func(format string, arguments ...any)

// Run measures. It returns an error when something did not work, and none for
// being slow.
func Run(ctx context.Context, c Config, progress Progress) (report *Report, err error) {
	return report, with(ctx, c, progress, func(b *bench) error {
		b.report.Setting = c.setting()
		if b.report.Setting.Kubernetes, err = b.cluster.Version(ctx); err != nil {
			return err
		}
		if err := b.measure(ctx); err != nil {
			return err
		}
		b.report.compare()
		report = &b.report
		return nil
	})
}

// with sets a run up, and removes all that it has made once do returns.
func with(ctx context.Context, c Config, progress Progress, do func(*bench) error) (err error) {
	b := &bench{config: c, progress: progress}
	if b.cluster, err = cluster.Connect(); err != nil {
		return err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		err = errors.Join(err, b.clean(cleaning))
	}()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	return do(b)
}

// bench is one run.
type bench struct {
	config   Config
	progress Progress
	cluster  *cluster.Cluster
	// control has the ids of the programs of the control plane, by name; none when
	// it runs elsewhere.
	control map[string]int
	// processors that all may run on; nil: none is moved.
	processors []int
	origin     *origin.Server
	meter      meter
	system     *system.System
	bare       *cluster.Namespace // for bare patches
	namespaces []*cluster.Namespace
	report     Report
	// label is the name of the folder with the profiles of a round.
	label string
	// crowd is the namespace of Watchers beside the round; nil: there are none.
	crowd *cluster.Namespace
	// Of the last round; the idle system goes on with them.
	piped *cluster.Namespace
	watch *observe.Observer
}

// setUp starts the system, and stops the watcher again: the streams exist then,
// and the fetcher and the writer are connected when a watcher finds all that
// there is to do.
func (b *bench) setUp(ctx context.Context) (err error) {
	if err := b.findControl(); err != nil {
		return err
	}
	b.origin = origin.Start(b.meter.before)
	if b.bare, err = b.newNamespace(ctx); err != nil {
		return err
	}
	b.progress("starting NATS, watcher, fetcher and writer")
	b.system, err = system.Start(ctx, system.Options{
		Bin: b.config.Bin, Namespace: b.bare.Name, Scrape: b.config.Scrape,
		Unsigned: b.config.Unsigned, Profiles: b.config.Profiles, Allocations: b.config.allocations,
		Writer: []string{"--namespace-writes=0"}, // all ConfigMaps are in one namespace
	})
	if err != nil {
		return err
	}
	return b.bare.Fill(ctx, min(b.config.N, mostBare), plain("bare", theirSize))
}

// findControl looks for the programs of the control plane on this machine.
func (b *bench) findControl() (err error) {
	if b.control, err = usage.Running(filepath.Dir(os.Getenv("KUBECONFIG"))); err != nil && !errors.Is(err, usage.ErrUnknown) {
		return err
	}
	maps.DeleteFunc(b.control, func(name string, _ int) bool { return !controlPlane(name) })
	return nil
}

// measure runs the phases.
func (b *bench) measure(ctx context.Context) error {
	placements := b.placements()
	for i := range b.config.Rounds {
		for _, p := range placements {
			b.progress("round %d of %d, %s", i+1, b.config.Rounds, p)
			if err := b.place(p); err != nil {
				return err
			}
			b.label = fmt.Sprint(p, "-", i+1)
			r, err := b.round(ctx, p)
			if err != nil {
				return err
			}
			b.report.Rounds = append(b.report.Rounds, r)
		}
	}
	if err := b.place(Shared); err != nil {
		return err
	}
	for _, phase := range []func(context.Context) error{b.idle, b.memory, b.company} {
		if err := phase(ctx); err != nil {
			return err
		}
		if err := b.system.Err(); err != nil {
			return err
		}
	}
	return nil
}

// round compares once. The ceiling is taken before and after the pipeline, since
// other work on the machine comes and goes.
func (b *bench) round(ctx context.Context, p Placement) (r Round, err error) {
	r.Placement = p
	if err := b.prepare(ctx); err != nil {
		return r, err
	}
	if r.Before, err = b.ceiling(ctx, "before"); err != nil {
		return r, err
	}
	if r.Pipeline, err = b.pipeline(ctx); err != nil {
		return r, err
	}
	if r.After, err = b.ceiling(ctx, "after"); err != nil {
		return r, err
	}
	return r.compare(), b.system.Err()
}

// prepare stops the watcher and creates the ConfigMaps of a round, in a namespace of
// its own.
func (b *bench) prepare(ctx context.Context) (err error) {
	b.progress("creating %d ConfigMaps", b.config.N)
	if err := b.system.StopWatcher(ctx); err != nil {
		return err
	}
	if b.piped, err = b.newNamespace(ctx); err != nil {
		return err
	}
	return b.piped.Fill(ctx, b.config.N, b.annotated)
}

func (b *bench) newNamespace(ctx context.Context) (*cluster.Namespace, error) {
	n, err := b.cluster.NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	b.namespaces = append(b.namespaces, n)
	return n, nil
}

// clean removes all that the run has made.
func (b *bench) clean(ctx context.Context) error {
	var errs []error
	if b.system != nil {
		errs = append(errs, b.system.Stop(ctx))
	}
	if b.origin != nil {
		b.origin.Close()
	}
	b.progress("deleting the ConfigMaps")
	for _, n := range b.namespaces {
		errs = append(errs, n.Remove(ctx))
	}
	return errors.Join(errs...)
}
