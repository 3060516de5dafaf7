// Package bench measures how fast the assembled system fills ConfigMaps, what
// that costs, and what there is to compare it with: the same API server, in the
// same run, patched by nothing but a loop.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/observe"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
)

// cleanTimeout is for deleting all objects, which goes at the pace of the
// creation.
const cleanTimeout = 5 * time.Minute

// Progress tells people what is being done.
type Progress func(format string, arguments ...any)

// Run measures. It returns an error when something did not work, and none for
// being slow.
func Run(ctx context.Context, c Config, say Progress) (report *Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("it takes longer than -timeout %s", c.Timeout))
	defer cancel()
	b := &bench{config: c, say: say}
	b.report.Setting = c.setting()
	if b.cluster, err = cluster.Connect(); err != nil {
		return nil, err
	}
	if b.report.Setting.Kubernetes, err = b.cluster.Version(ctx); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "curl-me-that-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for streams and logs: %w", err)
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		err = errors.Join(err, b.clean(cleaning))
		if err == nil {
			err = os.RemoveAll(b.dir)
		}
	}()
	if err := b.setUp(ctx); err != nil {
		return nil, err
	}
	if err := b.measure(ctx); err != nil {
		return nil, err
	}
	b.report.judge()
	return &b.report, nil
}

// bench is one run.
type bench struct {
	config  Config
	say     Progress
	dir     string
	cluster *cluster.Cluster
	origin  *origin.Server
	system  *system.System
	watch   *observe.Observer
	bare    *cluster.Namespace // for the ceiling
	piped   *cluster.Namespace // for the pipeline
	foreign *cluster.Namespace
	report  Report
}

// setUp starts the system and creates the ConfigMaps, in that order, with the
// watcher stopped in between: the streams exist then, and the fetcher and the
// writer are connected when the watcher finds all that there is to do.
func (b *bench) setUp(ctx context.Context) (err error) {
	if b.origin, err = origin.Start(b.config.Size); err != nil {
		return err
	}
	if b.bare, err = b.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	if b.piped, err = b.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	b.say("starting NATS, watcher, fetcher and writer; logs are in %s", b.dir)
	b.system, err = system.Start(ctx, system.Options{Bin: b.config.Bin, Dir: b.dir, Namespace: b.piped.Name})
	if err != nil {
		return err
	}
	if err := b.system.StopWatcher(); err != nil {
		return err
	}
	b.say("creating %d ConfigMaps for bare patches, %d for the pipeline, %d for the idle system", b.config.N, b.config.N, b.config.Idle)
	if err := b.bare.Fill(ctx, b.config.N, plain("bare", theirSize)); err != nil {
		return err
	}
	if err := b.piped.Fill(ctx, b.config.N, b.annotated); err != nil {
		return err
	}
	return b.piped.Fill(ctx, b.config.Idle, plain("idle", theirSize))
}

// measure runs the phases. The ceiling is taken before and after the pipeline,
// since other work on the machine comes and goes.
func (b *bench) measure(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{
		func(ctx context.Context) error { return b.ceiling(ctx, &b.report.Ceiling.Before) },
		b.pipeline,
		func(ctx context.Context) error { return b.ceiling(ctx, &b.report.Ceiling.After) },
		b.idle,
		b.memory,
		b.company,
	} {
		if err := phase(ctx); err != nil {
			return err
		}
		if err := b.system.Err(); err != nil {
			return err
		}
	}
	return nil
}

// clean removes all that the run has made, apart from the logs.
func (b *bench) clean(ctx context.Context) error {
	var errs []error
	if b.system != nil {
		errs = append(errs, b.system.Stop())
	}
	if b.origin != nil {
		errs = append(errs, b.origin.Stop())
	}
	b.say("deleting the ConfigMaps")
	for _, namespace := range []*cluster.Namespace{b.bare, b.piped, b.foreign} {
		if namespace != nil {
			errs = append(errs, namespace.Remove(ctx))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(b.dir, "streams")))...)
}
