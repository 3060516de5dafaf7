package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/observe"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/watchers"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// refreshKey is the annotation of the interval.
const refreshKey = "x-kv8s.io/" + annotation.RefreshName

// Beside is what rounds took alone, beside many ConfigMaps that somebody has
// annotated, and beside as many Watchers.
type Beside struct {
	Setting Setting `json:"setting"`
	// Watchers with one static key and one source, as many ConfigMaps with the same, and
	// N ConfigMaps in a round.
	Watchers int `json:"watchers"`
	N        int `json:"n"`
	// UntilReady is how many seconds all Watchers took to be Ready.
	UntilReady float64 `json:"untilReadySeconds"`
	// Rounds alone, beside ConfigMaps that were annotated by hand, and beside Watchers;
	// those of one index are compared.
	Alone  []Price `json:"alone"`
	ByHand []Price `json:"byHand"`
	With   []Price `json:"with"`
	// Keeper is what it uses at the end, with a body from each source, and Spent its
	// milliseconds on a processor while the pipeline worked.
	Keeper usage.Usage `json:"keeper"`
	Spent  float64     `json:"keeperCpuMilliseconds"`
}

// MeasureBeside fills ConfigMaps alone, beside others that are annotated by hand, and
// beside Watchers that are Ready, and then the same backwards, so that what drifts on
// the machine hits all alike. The same watcher sees what is beside.
func MeasureBeside(ctx context.Context, c Config, progress Progress) (m *Beside, err error) {
	m = &Beside{Setting: c.setting(), Watchers: c.Beside, N: c.N}
	first, second := (c.Rounds+1)/2, c.Rounds/2
	return m, with(ctx, c, progress, func(b *bench) error {
		for _, phase := range []struct {
			what   string
			beside func(context.Context, *Beside, func() error) error
			rounds int
			prices *[]Price
		}{
			{"alone", alone, first, &m.Alone},
			{"beside ConfigMaps", b.besideConfigMaps, first, &m.ByHand},
			{"beside Watchers", b.besideWatchers, c.Rounds, &m.With},
			{"beside ConfigMaps again", b.besideConfigMaps, second, &m.ByHand},
			{"alone again", alone, second, &m.Alone},
		} {
			if phase.rounds == 0 {
				continue
			}
			if err := phase.beside(ctx, m, func() error {
				prices, err := b.prices(ctx, phase.what, phase.rounds)
				*phase.prices = append(*phase.prices, prices...)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

func alone(_ context.Context, _ *Beside, measure func() error) error { return measure() }

// besideConfigMaps measures beside ConfigMaps that hold, and ask for, what those of
// the Watchers do, and removes them.
func (b *bench) besideConfigMaps(ctx context.Context, m *Beside, measure func() error) error {
	return b.crowded(ctx, func() error {
		b.progress("creating %d annotated ConfigMaps", m.Watchers)
		if err := b.crowd.Fill(ctx, m.Watchers, b.refreshed); err != nil {
			return err
		}
		_, version, err := b.crowd.ConfigMaps(ctx)
		if err != nil {
			return err
		}
		if b.watch, err = observe.Start(ctx, b.cluster.Metadata, b.crowd.Name, version); err != nil {
			return err
		}
		if err := errors.Join(b.system.StopWatcher(ctx), b.system.StartWatcher(ctx, b.crowd.Name)); err != nil {
			return err
		}
		if _, _, err := b.awaitAll(ctx, m.Watchers); err != nil {
			return err
		}
		return measure()
	})
}

// refreshed makes a ConfigMap that asks for its page as often as a Watcher does.
func (b *bench) refreshed(i int) *corev1.ConfigMap {
	cm := b.asking(name("crowd", i))
	cm.Annotations[refreshKey] = watchers.Interval
	return cm
}

// besideWatchers measures beside Watchers, and removes them.
func (b *bench) besideWatchers(ctx context.Context, m *Beside, measure func() error) error {
	return b.crowded(ctx, func() (err error) {
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
		if err := measure(); err != nil {
			return err
		}
		m.Keeper, err = keeper.Usage()
		m.Spent = usage.Milliseconds(m.Keeper.CPU - before.CPU)
		return err
	})
}

// crowded calls do with a namespace for what is beside a round, and removes it.
func (b *bench) crowded(ctx context.Context, do func() error) (err error) {
	if b.crowd, err = b.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.system.StopWatcher(ctx), b.crowd.Remove(context.WithoutCancel(ctx)))
		b.crowd = nil
	}()
	return do()
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

// prices creates ConfigMaps, which are filled, round by round beside a watcher that
// runs: to start it costs more the more there is to see, and is no part of the path of
// an annotation. The first round does not count, since it may come while the watcher
// retracts what was beside the rounds before.
func (b *bench) prices(ctx context.Context, what string, count int) (prices []Price, err error) {
	if b.piped, err = b.newNamespace(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(b.system.StopWatcher(ctx), b.system.StartWatcher(ctx, b.watched(b.piped))); err != nil {
		return nil, err
	}
	if err := b.system.AwaitWatcher(ctx); err != nil {
		return nil, err
	}
	for i := range count + 1 {
		b.progress("%s, %d of %d", what, i, count)
		price, err := b.price(ctx, i)
		if err != nil {
			return nil, err
		}
		prices = append(prices, price)
	}
	return prices[1:], nil
}

// price creates the ConfigMaps of one round, and waits until they are filled.
func (b *bench) price(ctx context.Context, round int) (p Price, err error) {
	_, version, err := b.piped.ConfigMaps(ctx)
	if err != nil {
		return p, err
	}
	if b.watch, err = observe.Start(ctx, b.cluster.Metadata, b.piped.Name, version); err != nil {
		return p, err
	}
	before, err := b.snapshot(ctx)
	if err != nil {
		return p, err
	}
	created := make(chan error, 1)
	go func() {
		created <- b.piped.Fill(ctx, b.config.N, func(i int) *corev1.ConfigMap { return b.annotated(round*b.config.N + i) })
	}()
	first, last, err := b.awaitAll(ctx, b.config.N)
	if err := errors.Join(err, <-created); err != nil {
		return p, err
	}
	after, err := b.snapshot(ctx)
	if err != nil {
		return p, err
	}
	p, err = priceOf(Pipeline{PerSecondFilling: rate(b.config.N-1, last.Sub(first)), Cost: before.cost(after, b.config.N)})
	return p, errors.Join(err, b.verify(ctx, "piped", (round+1)*b.config.N))
}

// WriteTable writes the middle of the rounds of each kind, and of the differences
// between those of one index, with the least and the most.
func (m *Beside) WriteTable(w io.Writer) error {
	t := &table{Writer: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.title(fmt.Sprintf("beside %d, %d rounds of %d ConfigMaps, %s", m.Watchers, len(m.With), m.N, load()))
	for _, kind := range []struct {
		name   string
		prices []Price
	}{{"alone", m.Alone}, {"beside ConfigMaps", m.ByHand}, {"beside Watchers", m.With}} {
		var perSecond, cpu []float64
		for _, r := range kind.prices {
			perSecond, cpu = append(perSecond, r.PerSecond), append(cpu, r.of(nil))
		}
		t.row(kind.name, "%s ConfigMaps/s\t%s ms of CPU each\t%s", spread("%.0f", perSecond), spread("%.3f", cpu), programs(kind.prices))
	}
	for _, pair := range []struct {
		name   string
		of, to []Price
	}{
		{"ConfigMaps ÷ alone", m.ByHand, m.Alone}, {"Watchers ÷ alone", m.With, m.Alone}, {"Watchers ÷ ConfigMaps", m.With, m.ByHand},
	} {
		var faster, more []float64
		for i := range pair.of {
			faster = append(faster, pair.of[i].PerSecond/pair.to[i].PerSecond)
			more = append(more, pair.of[i].of(nil)/pair.to[i].of(nil))
		}
		t.row(pair.name, "throughput %s\tCPU %s", spread("%.2f", faster), spread("%.2f", more))
	}
	t.row("keeper", "%.1f MiB, at most %.1f\t%.0f ms of CPU in all rounds; all Ready after %.0f s", float64(m.Keeper.RSS)/mebibyte,
		float64(m.Keeper.PeakRSS)/mebibyte, m.Spent, m.UntilReady)
	return t.Flush()
}

// spread is the middle of values, with the least and the most.
func spread(format string, values []float64) string {
	return fmt.Sprintf(format+" ("+format+" to "+format+")", middle(values), slices.Min(values), slices.Max(values))
}
