package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/refresh"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Restarts is what a want waits for beside many keys, by what was started again.
type Restarts struct {
	Rows []Restarted `json:"rows"`
	// Outage is after NATS was away, without Kubernetes.
	Outage refresh.Outage `json:"outage"`
}

// Restarted is one row. The first one is without a restart.
type Restarted struct {
	What string `json:"what"`
	// Seconds from the start of the program, to which the ConfigMap was created
	// while it was away, to its data.
	Seconds float64 `json:"seconds"`
	// Whole is when NATS had all keys again, in seconds from the same; 0: it was not
	// wiped.
	Whole float64 `json:"wholeSeconds,omitempty"`
	// Gets is how many there were meanwhile: 1, since nothing else is fetched.
	Gets int `json:"gets"`
	// Cost is what was used for that ConfigMap and the start.
	Cost Cost `json:"cost"`
}

// wipedSuffix marks the restart of NATS without its files.
const wipedSuffix = ", wiped"

// restarts starts each program again beside the ConfigMaps of the last round, and
// then measures an outage of as many keys.
func (b *bench) restarts(ctx context.Context) (r Restarts, err error) {
	for i, what := range []string{"nothing", "watcher", "fetcher", "writer", "nats", "nats" + wipedSuffix} {
		row, err := b.restart(ctx, what, i)
		if err != nil {
			return r, fmt.Errorf("start %s again: %w", what, err)
		}
		b.progress("%s: %.2f s", what, row.Seconds)
		r.Rows = append(r.Rows, row)
	}
	r.Outage, err = refresh.MeasureOutage(ctx, refresh.Options{Bin: b.config.Bin, Keys: b.config.N}, b.progress)
	return r, err
}

// restart starts a program again, with a ConfigMap that waits for it.
func (b *bench) restart(ctx context.Context, what string, number int) (r Restarted, err error) {
	waiting := name("restart", number)
	began := time.Now()
	create := func() error {
		b.meter.reset()
		began = time.Now()
		return b.piped.Fill(ctx, 1, func(int) *corev1.ConfigMap {
			return b.asking(waiting)
		})
	}
	before, err := b.snapshot(ctx)
	if err != nil {
		return r, err
	}
	delete(before.programs, strings.TrimSuffix(what, wipedSuffix)) // which begins anew
	switch what {
	case "nothing":
		err = create()
	case "nats" + wipedSuffix:
		err = b.system.Restart(ctx, "nats", func() error {
			return errors.Join(os.RemoveAll(b.system.Streams()), create())
		})
	default:
		err = b.system.Restart(ctx, what, create)
	}
	if err != nil {
		return r, err
	}
	at, err := b.awaitOne(ctx, waiting)
	if err != nil {
		return r, err
	}
	r = Restarted{What: what, Seconds: at.Sub(began).Seconds()}
	if strings.HasSuffix(what, wipedSuffix) {
		if err := b.awaitWants(ctx, b.config.N); err != nil {
			return r, err
		}
		r.Whole = time.Since(began).Seconds()
	}
	after, err := b.snapshot(ctx)
	if err != nil {
		return r, err
	}
	r.Gets, _, _ = b.meter.count()
	r.Cost = before.cost(after, 1)
	return r, nil
}

// awaitWants waits until NATS has so many wants.
func (b *bench) awaitWants(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stallTimeout, fmt.Errorf("%w: NATS does not have all wants again after %s", errWrong, stallTimeout))
	defer cancel()
	nc, js, err := keys.Connect(b.system.NATS())
	if err != nil {
		return err
	}
	defer nc.Close()
	for {
		stream, err := js.Stream(ctx, pipeline.Requests)
		if err == nil && stream.CachedInfo().State.NumSubjects >= uint64(count) {
			return nil
		}
		if err := errors.Join(b.system.Err(), system.Pause(ctx, lookEvery)); err != nil {
			return err
		}
	}
}

// WriteTable writes a row for each restart, with how much longer it took than
// without one.
func (r Restarts) WriteTable(w io.Writer) error {
	t := markdown.New(fmt.Sprintf("started again beside %d keys", r.Outage.Keys), "a want is served after", "÷ without", "GETs", "CPU until then, ms")
	for _, row := range r.Rows {
		what := row.What
		if row.Whole > 0 {
			what += fmt.Sprintf("; all keys are there after %.2f s", row.Whole)
		}
		t.Row(what, "%.2f s | %.0f | %d | %s", row.Seconds, row.Seconds/r.Rows[0].Seconds, row.Gets, cpu(row.Cost))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return r.Outage.WriteTable(w)
}
