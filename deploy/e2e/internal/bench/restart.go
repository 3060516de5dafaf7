package bench

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// restart is the restart of one program. The first row of a run is a baseline without a restart.
type restart struct {
	What       string `json:"what"`
	ConfigMaps int    `json:"configMaps"`
	// Seconds from the creation of a ConfigMap, while the program is stopped, until its data is written.
	Seconds float64 `json:"seconds"`
	// All is the seconds until a wiped NATS has all wants again.
	All float64 `json:"allWantsSeconds,omitempty"`
}

// wiped is a restart of NATS without its files.
const wiped = "nats, wiped"

// measureRestart fills ConfigMaps, and then restarts one program after the other.
func measureRestart(ctx context.Context, o Options, report func(any)) {
	var all []restart
	withFiller(ctx, o, max(2, o.Restart), func(f *filler) {
		f.Progress("filling %d ConfigMaps", f.N)
		f.prepare(ctx)
		f.pipeline(ctx, &round{})
		f.changes = f.cluster.watch(ctx, f.piped)
		for n, what := range []string{"nothing", "watcher", "fetcher", "writer", "nats", wiped} {
			row := f.restart(ctx, what, n)
			f.Progress("%s: %.2f s", what, row.Seconds)
			all = append(all, row)
			report(all)
		}
	})
}

func (f *filler) restart(ctx context.Context, what string, n int) restart {
	waiting := f.annotated("restart", n)
	began := time.Now()
	create := func() {
		began = time.Now()
		f.cluster.create(ctx, f.piped, 1, func(int) *corev1.ConfigMap { return waiting })
	}
	switch what {
	case "nothing":
		create()
	case wiped:
		f.system.restart(ctx, "nats", func() { check(os.RemoveAll(f.system.streams())); create() })
	default:
		f.system.restart(ctx, what, create)
	}
	r := restart{What: what, ConfigMaps: f.N, Seconds: f.awaitOne(ctx, waiting.Name).Sub(began).Seconds()}
	if what == wiped {
		mustAwait(ctx, "NATS has all wants", stallTimeout, func() bool {
			f.system.check()
			stream, err := f.system.js.Stream(ctx, pipeline.Requests)
			return err == nil && stream.CachedInfo().State.NumSubjects >= uint64(f.N)
		})
		r.All = time.Since(began).Seconds()
	}
	return r
}
