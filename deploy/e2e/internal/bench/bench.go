// Package bench measures how fast the assembled system fills ConfigMaps, what
// that costs, and what there is to compare it with: the same API server, in the
// same run, patched by nothing but a loop.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/observe"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// cleanTimeout is for deleting all objects, which goes at the pace of the
// creation.
const cleanTimeout = 5 * time.Minute

// Progress prints what is being done.
type Progress func(format string, arguments ...any)

// Run measures. It returns an error when something did not work, and none for
// being slow.
func Run(ctx context.Context, c Config, progress Progress) (report *Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("it takes longer than -timeout %s", c.Timeout))
	defer cancel()
	b := &bench{config: c, progress: progress}
	b.report.Setting = c.setting()
	if b.cluster, err = cluster.Connect(); err != nil {
		return nil, err
	}
	if b.report.Setting.Kubernetes, err = b.cluster.Version(ctx); err != nil {
		return nil, err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		err = errors.Join(err, b.clean(cleaning))
	}()
	if err := b.setUp(ctx); err != nil {
		return nil, err
	}
	if err := b.measure(ctx); err != nil {
		return nil, err
	}
	b.report.compare()
	return &b.report, nil
}

// bench is one run.
type bench struct {
	config     Config
	progress   Progress
	dir        string
	cluster    *cluster.Cluster
	origin     *origin.Server
	meter      meter
	system     *system.System
	bare       *cluster.Namespace // for bare patches
	namespaces []*cluster.Namespace
	report     Report
	// Of the last round; the idle system goes on with them.
	piped *cluster.Namespace
	watch *observe.Observer
}

// setUp starts the system, and stops the watcher again: the streams exist then,
// and the fetcher and the writer are connected when a watcher finds all that
// there is to do.
func (b *bench) setUp(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "curl-me-that-bench-"); err != nil {
		return fmt.Errorf("make a folder for the streams: %w", err)
	}
	b.origin = origin.Start(b.meter.before)
	if b.bare, err = b.newNamespace(ctx); err != nil {
		return err
	}
	b.progress("starting NATS, watcher, fetcher and writer")
	b.system, err = system.Start(ctx, system.Options{Bin: b.config.Bin, Dir: b.dir, Namespace: b.bare.Name, Scrape: b.config.Scrape, Unsigned: b.config.Unsigned, Profiles: b.config.Profiles})
	if err != nil {
		return err
	}
	return b.bare.Fill(ctx, b.config.N, plain("bare", theirSize))
}

// measure runs the phases.
func (b *bench) measure(ctx context.Context) error {
	for i := range b.config.Rounds {
		if err := b.round(ctx, i+1); err != nil {
			return err
		}
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
func (b *bench) round(ctx context.Context, number int) (err error) {
	b.progress("round %d of %d: creating %d ConfigMaps", number, b.config.Rounds, b.config.N)
	if err := b.system.StopWatcher(ctx); err != nil {
		return err
	}
	if b.piped, err = b.newNamespace(ctx); err != nil {
		return err
	}
	if err := b.piped.Fill(ctx, b.config.N, b.annotated); err != nil {
		return err
	}
	var r Round
	if r.Before, err = b.ceiling(ctx); err != nil {
		return err
	}
	if r.Pipeline, err = b.pipeline(ctx, number); err != nil {
		return err
	}
	if r.After, err = b.ceiling(ctx); err != nil {
		return err
	}
	b.report.Rounds = append(b.report.Rounds, r.compare())
	return b.system.Err()
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
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}
