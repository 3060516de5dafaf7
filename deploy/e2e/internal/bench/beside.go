package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/watchers"
)

// Beside is what rounds took without Watchers, and beside many.
type Beside struct {
	Setting Setting `json:"setting"`
	// Watchers with one static key and one source, and N ConfigMaps in a round.
	Watchers int `json:"watchers"`
	N        int `json:"n"`
	// UntilReady is how many seconds all Watchers took to be Ready.
	UntilReady float64 `json:"untilReadySeconds"`
	// Rounds without Watchers and beside them; those of one index are a pair.
	Without []Price `json:"without"`
	With    []Price `json:"with"`
	// Keeper is what it uses at the end, with a body from each source, and Spent its
	// milliseconds on a processor while the pipeline worked.
	Keeper usage.Usage `json:"keeper"`
	Spent  float64     `json:"keeperCpuMilliseconds"`
}

// MeasureBeside fills ConfigMaps without Watchers, then beside Watchers that are
// Ready, whose ConfigMaps the same watcher sees, then without any again, so that
// what drifts on the machine hits both alike.
func MeasureBeside(ctx context.Context, c Config, progress Progress) (m *Beside, err error) {
	m = &Beside{Setting: c.setting(), Watchers: c.Beside, N: c.N}
	return m, with(ctx, c, progress, func(b *bench) error {
		if m.Without, err = b.prices(ctx, "without Watchers", (c.Rounds+1)/2); err != nil {
			return err
		}
		if err := b.beside(ctx, m); err != nil {
			return err
		}
		again, err := b.prices(ctx, "without Watchers again", c.Rounds/2)
		m.Without = append(m.Without, again...)
		return err
	})
}

// beside measures the rounds beside Watchers, and removes these.
func (b *bench) beside(ctx context.Context, m *Beside) (err error) {
	if b.crowd, err = b.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.system.StopWatcher(ctx), b.crowd.Remove(context.WithoutCancel(ctx)))
		b.crowd = nil
	}()
	b.progress("creating %d Watchers", m.Watchers)
	remove, err := watchers.Create(ctx, b.crowd.Name, m.Watchers, b.rules)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	keeper, err := watchers.StartKeeper(b.config.Bin, b.crowd.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Stop(context.WithoutCancel(ctx))) }()
	if err := b.awaitWatchers(ctx, m, keeper); err != nil {
		return err
	}
	before, err := keeper.Usage()
	if err != nil {
		return err
	}
	if m.With, err = b.prices(ctx, "beside Watchers", b.config.Rounds); err != nil {
		return err
	}
	m.Keeper, err = keeper.Usage()
	m.Spent = milliseconds(m.Keeper.CPU - before.CPU)
	return err
}

// awaitWatchers waits until all Watchers are Ready.
func (b *bench) awaitWatchers(ctx context.Context, m *Beside, keeper *watchers.Keeper) error {
	began := time.Now()
	if err := errors.Join(b.system.StopWatcher(ctx), b.system.StartWatcher(ctx, b.crowd.Name)); err != nil {
		return err
	}
	if err := keeper.Await(ctx, `curlmethat_keeper_watchers{state="ready"}`, m.Watchers); err != nil {
		return err
	}
	m.UntilReady = time.Since(began).Seconds()
	b.progress("all Watchers are Ready after %.0f s", m.UntilReady)
	return nil
}

// rules returns the URL of a Watcher's source, whose page it makes.
func (b *bench) rules(i int) string {
	path := fmt.Sprintf("/rules-%05d", i)
	b.origin.Page(path).Says(body(path, b.config.Size))
	return "http://" + b.origin.PageByAddress(path)
}

// prices fills ConfigMaps, in one new namespace after another.
func (b *bench) prices(ctx context.Context, what string, count int) (prices []Price, err error) {
	for i := range count {
		b.progress("%s, %d of %d: creating %d ConfigMaps", what, i+1, count, b.config.N)
		if err := b.system.StopWatcher(ctx); err != nil {
			return nil, err
		}
		if b.piped, err = b.newNamespace(ctx); err != nil {
			return nil, err
		}
		if err := b.piped.Fill(ctx, b.config.N, b.annotated); err != nil {
			return nil, err
		}
		p, err := b.pipeline(ctx)
		if err != nil {
			return nil, err
		}
		price, err := priceOf(p)
		if err != nil {
			return nil, err
		}
		prices = append(prices, price)
	}
	return prices, nil
}

// WriteTable writes the middle of the rounds of both kinds, and of the differences
// within the pairs, with the least and the most.
func (m *Beside) WriteTable(w io.Writer) error {
	t := &table{Writer: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.title(fmt.Sprintf("beside %d Watchers, %d pairs of %d ConfigMaps, %s", m.Watchers, len(m.With), m.N, load()))
	var faster, more []float64
	for i, with := range m.With {
		faster = append(faster, 100*(with.PerSecond/m.Without[i].PerSecond-1))
		more = append(more, 100*(with.of(nil)/m.Without[i].of(nil)-1))
	}
	for _, kind := range []struct {
		name   string
		prices []Price
	}{{"without Watchers", m.Without}, {"beside Watchers", m.With}} {
		var perSecond, cpu []float64
		for _, r := range kind.prices {
			perSecond, cpu = append(perSecond, r.PerSecond), append(cpu, r.of(nil))
		}
		t.row(kind.name, "%.0f ConfigMaps/s (%.0f to %.0f)\t%.3f ms of CPU each (%.3f to %.3f)", middle(perSecond),
			slices.Min(perSecond), slices.Max(perSecond), middle(cpu), slices.Min(cpu), slices.Max(cpu))
	}
	t.row("difference in pairs", "throughput %+.1f %% (%+.1f to %+.1f)\tCPU %+.1f %% (%+.1f to %+.1f)", middle(faster),
		slices.Min(faster), slices.Max(faster), middle(more), slices.Min(more), slices.Max(more))
	t.row("keeper", "%.1f MiB, at most %.1f\t%.0f ms of CPU in all rounds; all Ready after %.0f s", float64(m.Keeper.RSS)/mebibyte,
		float64(m.Keeper.PeakRSS)/mebibyte, m.Spent, m.UntilReady)
	return t.Flush()
}
