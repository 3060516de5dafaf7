package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// restart is one restart of a program. The first of a run is without one.
type restart struct {
	What       string `json:"what"`
	ConfigMaps int    `json:"configMaps"`
	// Seconds from the start of the program to the data of a ConfigMap that was created
	// while the program was stopped.
	Seconds float64 `json:"seconds"`
	// All is when a NATS without files had all wants again.
	All float64 `json:"allWantsSeconds,omitempty"`
}

// wiped is a restart of NATS without its files.
const wiped = "nats, wiped"

// measureRestart fills ConfigMaps, and then restarts one program after the other.
func measureRestart(ctx context.Context, o Options) (any, error) {
	var all []restart
	err := withFiller(ctx, o, max(2, o.Restart), func(f *filler) error {
		f.Progress("filling %d ConfigMaps", f.N)
		if err := f.prepare(ctx); err != nil {
			return err
		}
		if err := f.pipeline(ctx, &round{}); err != nil {
			return err
		}
		var err error
		if f.changes, err = f.cluster.watch(ctx, f.piped); err != nil {
			return err
		}
		for n, what := range []string{"nothing", "watcher", "fetcher", "writer", "nats", wiped} {
			row, err := f.restart(ctx, what, n)
			if err != nil {
				return fmt.Errorf("restart %s: %w", what, err)
			}
			f.Progress("%s: %.2f s", what, row.Seconds)
			all = append(all, row)
		}
		return nil
	})
	return all, err
}

func (f *filler) restart(ctx context.Context, what string, n int) (r restart, err error) {
	waiting := f.annotated("restart", n)
	began := time.Now()
	create := func() error {
		began = time.Now()
		return f.cluster.create(ctx, f.piped, 1, func(int) *corev1.ConfigMap { return waiting })
	}
	switch what {
	case "nothing":
		err = create()
	case wiped:
		err = f.system.restart(ctx, "nats", func() error { return errors.Join(os.RemoveAll(f.system.streams()), create()) })
	default:
		err = f.system.restart(ctx, what, create)
	}
	if err != nil {
		return r, err
	}
	at, err := f.awaitOne(ctx, waiting.Name)
	if err != nil {
		return r, err
	}
	r = restart{What: what, ConfigMaps: f.N, Seconds: at.Sub(began).Seconds()}
	if what == wiped {
		err = await(ctx, "NATS has all wants", stallTimeout, func() (bool, error) {
			stream, err := f.system.js.Stream(ctx, pipeline.Requests)
			return err == nil && stream.CachedInfo().State.NumSubjects >= uint64(f.N), f.system.err()
		})
		r.All = time.Since(began).Seconds()
	}
	return r, err
}
