package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// form is the system with some of what guards it.
type form struct {
	name                         string
	signatures, accounts, policy bool
	// by are the programs that do the work of it, so that the noise of the others is left
	// out; none: all of them.
	by []string
}

// forms that are compared; the first one is what the others are compared with.
func forms() []form {
	return []form{
		{name: "none"},
		{name: "signatures", signatures: true, by: []string{"watcher", "writer"}},
		{name: "accounts", accounts: true, by: []string{"nats", "watcher", "fetcher", "writer"}},
		{name: "policy", policy: true, by: []string{"kube-apiserver"}},
		{name: "all", signatures: true, accounts: true, policy: true},
	}
}

// Price is what one form has cost in one round.
type Price struct {
	// CPU is the time on processors by program, the API server included and the benchmark
	// not, in milliseconds for each ConfigMap.
	CPU map[string]float64 `json:"cpuMillisecondsPerConfigMap"`
	// PerSecond counts ConfigMaps from the first one filled on.
	PerSecond float64 `json:"perSecondFilling"`
}

// of sums the time of some programs up; none: of all.
func (r Price) of(programs []string) (sum float64) {
	for program, cpu := range r.CPU {
		if len(programs) == 0 || slices.Contains(programs, program) {
			sum += cpu
		}
	}
	return sum
}

// besides returns what some programs take in units of what the others take: where the
// machine is slower for a while, so are both.
func (r Price) besides(programs []string) float64 {
	return r.of(programs) / (r.of(nil) - r.of(programs))
}

// Prices are what each form has cost, by form and round.
type Prices struct {
	N         int                `json:"n"`
	Placement Placement          `json:"placement"`
	Forms     map[string][]Price `json:"forms"`
}

// MeasurePrices fills ConfigMaps with each form of the system in turn, round by
// round, so that other work on the machine hits them alike. On an error the rounds
// that were finished are returned. With Apart all of it is measured with the control
// plane on a processor of its own, where that is possible.
func MeasurePrices(ctx context.Context, c Config, progress Progress) (p *Prices, err error) {
	p = &Prices{N: c.N, Forms: map[string][]Price{}}
	b := &bench{config: c, progress: progress}
	if b.cluster, err = cluster.Connect(); err != nil {
		return p, err
	}
	if err := b.findControl(); err != nil {
		return p, err
	}
	placements := b.placements()
	p.Placement = placements[len(placements)-1]
	unsigned, err := os.MkdirTemp("", "curl-me-that-unsigned-")
	if err != nil {
		return p, fmt.Errorf("make a folder for programs: %w", err)
	}
	defer os.RemoveAll(unsigned)
	progress("building watcher and writer without signatures")
	if err := system.BuildUnsigned(ctx, c.Bin, unsigned); err != nil {
		return p, err
	}
	guard, err := newGuard(ctx, b.cluster, filepath.Join(unsigned, "kubeconfig"))
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, guard.remove(context.WithoutCancel(ctx))) }()
	for i := range c.Rounds {
		round := map[string]Price{}
		// Another one first each time, as what comes first has the machine to itself.
		first := i % len(forms())
		for _, f := range slices.Concat(forms()[first:], forms()[:first]) {
			progress("round %d of %d: %s", i+1, c.Rounds, f.name)
			b.label = fmt.Sprintf("prices-%s-%d", f.name, i+1)
			if round[f.name], err = b.form(ctx, f, p.Placement, guard, unsigned); err != nil {
				return p, fmt.Errorf("%s: %w", f.name, err)
			}
		}
		for name, r := range round {
			p.Forms[name] = append(p.Forms[name], r)
		}
	}
	return p, nil
}

// form fills ConfigMaps with one form of the system.
func (b *bench) form(ctx context.Context, f form, placement Placement, guard *guard, unsigned string) (r Price, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.policy {
		if err := guard.begin(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, guard.end(context.WithoutCancel(ctx))) }()
	}
	options := system.Options{
		Bin: b.config.Bin, Unsigned: !f.signatures, Accounts: f.accounts, Profiles: b.config.Profiles,
		Writer: []string{"--kubeconfig=" + guard.kubeconfig},
	}
	if !f.signatures {
		options.Bin = unsigned
	}
	b.origin = origin.Start(b.meter.before)
	defer b.origin.Close()
	if b.piped, err = b.cluster.NewNamespace(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.piped.Remove(context.WithoutCancel(ctx))) }()
	options.Namespace = b.piped.Name
	if b.system, err = system.Start(ctx, options); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.place(Shared), b.system.Stop(ctx)) }()
	if err := b.system.StopWatcher(ctx); err != nil {
		return r, err
	}
	if err := b.place(placement); err != nil {
		return r, err
	}
	if err := b.piped.Fill(ctx, b.config.N, b.annotated); err != nil {
		return r, err
	}
	p, err := b.pipeline(ctx)
	if err != nil {
		return r, err
	}
	return priceOf(p)
}

// priceOf returns what a pipeline has cost.
func priceOf(p Pipeline) (Price, error) {
	if p.Cost.CallsPerConfigMap > callsBound {
		return Price{}, fmt.Errorf("%w: %.2f API calls for each ConfigMap", errWrong, p.Cost.CallsPerConfigMap)
	}
	delete(p.Cost.CPUPerConfigMap, "bench")
	return Price{CPU: p.Cost.CPUPerConfigMap, PerSecond: p.PerSecondFilling}, nil
}

// callsBound: with more calls for each ConfigMap, other things are compared than
// what guards them.
const callsBound = 1.1

// WriteTable writes, for each form, the middle of its rounds: of the time by program,
// and of what it took more than the first form in the same round, as a part of all that
// took, with the least and the most. The second measure is the same against what the other
// programs have taken with the same form.
func (p *Prices) WriteTable(w io.Writer) error {
	t := &table{Writer: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	none := p.Forms[forms()[0].name]
	t.title(fmt.Sprintf("prices, %s, %d rounds of %d ConfigMaps, %s", p.Placement, len(none), p.N, load()))
	for _, f := range forms() {
		var all, more, relative, slower []float64
		for i, r := range p.Forms[f.name] {
			all = append(all, r.of(nil))
			more = append(more, 100*(r.of(f.by)-none[i].of(f.by))/none[i].of(nil))
			if f.by != nil {
				before := none[i].besides(f.by)
				relative = append(relative, 100*(r.besides(f.by)-before)/(1+before))
			}
			slower = append(slower, 100*(1-r.PerSecond/none[i].PerSecond))
		}
		if len(all) == 0 {
			continue
		}
		t.row(f.name, "%.3f ms of CPU a ConfigMap\t%+.1f %% (%+.1f to %+.1f) by %s\tthroughput %+.1f %% (%+.1f to %+.1f)", middle(all),
			middle(more), slices.Min(more), slices.Max(more), cmp.Or(strings.Join(f.by, ", "), "all"), -middle(slower), -slices.Max(slower), -slices.Min(slower))
		t.row("", "%s", programs(p.Forms[f.name]))
		if relative != nil {
			t.row("", "%+.1f %% (%+.1f to %+.1f) in units of what the other programs take", middle(relative), slices.Min(relative), slices.Max(relative))
		}
	}
	return t.Flush()
}

// programs are the middle times by program.
func programs(prices []Price) string {
	times := map[string][]float64{}
	for _, r := range prices {
		for program, cpu := range r.CPU {
			times[program] = append(times[program], cpu)
		}
	}
	var parts []string
	for _, program := range sorted(times) {
		parts = append(parts, fmt.Sprintf("%s %.3f", program, middle(times[program])))
	}
	return strings.Join(parts, ", ")
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// load is how busy the machine was, where that is known.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load unknown"
	}
	return "load " + string(text[:max(0, slices.Index(text, ' '))]) + " at the end"
}
