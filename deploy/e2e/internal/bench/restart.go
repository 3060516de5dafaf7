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

// restart has a row for each program that was restarted. The first one is without a
// restart.
type restart struct {
	ConfigMaps int          `json:"configMaps"`
	Rows       []restartRow `json:"rows"`
}

type restartRow struct {
	What string `json:"what"`
	// Seconds from the start of the program to the data of a ConfigMap that was created
	// while the program was stopped.
	Seconds float64 `json:"seconds"`
	// All is when a NATS without files had all wants again.
	All float64            `json:"allWantsSeconds,omitempty"`
	CPU map[string]float64 `json:"cpuMilliseconds"`
}

// wiped is a restart of NATS without its files.
const wiped = "nats, wiped"

// measureRestart fills ConfigMaps, and then restarts one program after the other.
func measureRestart(ctx context.Context, o Options) (Figures, error) {
	r := restart{ConfigMaps: max(2, o.Restart)}
	err := withFiller(ctx, o, r.ConfigMaps, func(f *filler) error {
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
			r.Rows = append(r.Rows, row)
		}
		return nil
	})
	return r, err
}

func (f *filler) restart(ctx context.Context, what string, n int) (r restartRow, err error) {
	waiting := f.annotated("restart", n)
	began := time.Now()
	create := func() error {
		began = time.Now()
		return f.cluster.create(ctx, f.piped, 1, func(int) *corev1.ConfigMap { return waiting })
	}
	before, err := f.moment(ctx)
	if err != nil {
		return r, err
	}
	switch what {
	case "nothing":
		err = create()
	case wiped:
		delete(before.used, "nats") // its counters start at zero
		err = f.system.restart(ctx, "nats", func() error { return errors.Join(os.RemoveAll(f.system.streams()), create()) })
	default:
		delete(before.used, what)
		err = f.system.restart(ctx, what, create)
	}
	if err != nil {
		return r, err
	}
	at, err := f.awaitOne(ctx, waiting.Name)
	if err != nil {
		return r, err
	}
	r = restartRow{What: what, Seconds: at.Sub(began).Seconds()}
	if what == wiped {
		err = await(ctx, "NATS has all wants", stallTimeout, func() (bool, error) {
			stream, err := f.system.js.Stream(ctx, pipeline.Requests)
			return err == nil && stream.CachedInfo().State.NumSubjects >= uint64(f.N), f.system.err()
		})
		r.All = time.Since(began).Seconds()
	}
	if err != nil {
		return r, err
	}
	after, err := f.moment(ctx)
	r.CPU = after.used.cpuSince(before.used, 1)
	return r, err
}

// Table has a row for each restart.
func (r restart) Table() string {
	t := newTable(fmt.Sprintf("restarted next to %d ConfigMaps", r.ConfigMaps), "a want is served after", "÷ without", "CPU until then, ms")
	for _, row := range r.Rows {
		what, cpu := row.What, ""
		if row.All > 0 {
			what += fmt.Sprintf(" (all wants are back after %.2f s)", row.All)
		}
		for _, name := range sorted(row.CPU) {
			cpu += fmt.Sprintf("%s %.0f ", name, row.CPU[name])
		}
		t.row(what, fmt.Sprintf("%.2f s", row.Seconds), fmt.Sprintf("%.0f", row.Seconds/r.Rows[0].Seconds), cpu)
	}
	return t.String()
}
