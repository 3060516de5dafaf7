// Package bench measures how fast and at what cost the assembled system fills and refreshes ConfigMaps, and the
// effect of a slow host. The baselines from the same run are patches in a loop, and the slots of a host.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Options select the measurements.
type Options struct {
	// N is the number of ConfigMaps of a round.
	N int
	// Rounds is the number of comparisons with bare patches, or of refreshes of each key.
	Rounds int
	// Refresh is the number of keys that are refreshed every 10 s.
	Refresh int
	// SlowHost measures a host that 16,000 keys wait for.
	SlowHost bool
	// Latencies of that host, and numbers of fetchers.
	Latencies, Fetchers string
	// Short reduces everything to a fiftieth.
	Short bool
	// Bin is the folder of the programs.
	Bin string
	// Timeout of the run.
	Timeout time.Duration
	// Progress prints the current step.
	Progress func(format string, arguments ...any)

	fetchers  []int
	latencies []time.Duration
}

// Mode is one kind of measurement.
type Mode struct {
	Name string
	// measure reports the figures so far after each step. Their JSON names include the units.
	measure func(context.Context, Options, func(any))
	wanted  bool
}

// Measure returns the figures, or those so far if it fails.
func (m Mode) Measure(ctx context.Context, o Options) (figures any, err error) {
	defer func() { err = failed(recover()) }()
	m.measure(ctx, o, func(so any) { figures = so })
	return figures, nil
}

// BindFlags binds the options to flags.
func (o *Options) BindFlags(fs *flag.FlagSet) {
	fs.IntVar(&o.N, "n", 2000, "number of ConfigMaps in a round")
	fs.IntVar(&o.Rounds, "rounds", 3,
		"number of rounds, with the median as the result (with -refresh: refreshes of each key)")
	fs.IntVar(&o.Refresh, "refresh", 0, "measure the cost of refreshing this many unchanged keys every 10s")
	fs.BoolVar(&o.SlowHost, "slow-host", false,
		"measure the slots in use of a slow host and the timer messages per GET")
	fs.StringVar(&o.Latencies, "latencies", "1ms,100ms,1s,10s", "with -slow-host: latencies of the host")
	fs.StringVar(&o.Fetchers, "fetchers", "1,2,4,8", "with -slow-host: numbers of fetchers")
	fs.BoolVar(&o.Short, "short", false, "reduce everything to a fiftieth, as a quick check")
	fs.StringVar(&o.Bin, "bin", "bin", "folder with watcher, fetcher and writer")
	fs.DurationVar(&o.Timeout, "timeout", 30*time.Minute, "maximum duration of the run")
}

// Modes returns the modes that the flags select, or fill if they select none.
func (o *Options) Modes() []Mode {
	fill := o.Short || o.Refresh == 0 && !o.SlowHost
	modes := []Mode{
		{"fill", measureFill, fill},
		{"refresh", measureRefresh, o.Refresh > 0},
		{"slow-host", measureSlowHost, o.SlowHost},
	}
	return slices.DeleteFunc(modes, func(m Mode) bool { return !m.wanted })
}

// part is the fraction that a short run measures.
const part = 0.02

// short returns n, reduced in a short run.
func short[T int | time.Duration](o Options, n T) T {
	if o.Short {
		return T(float64(n) * part)
	}
	return n
}

// Complete checks the options, applies Short, and returns the first error.
func (o *Options) Complete() (err error) {
	if o.N < 2 || o.Rounds < 1 || o.Refresh < 0 || o.Timeout <= 0 {
		return errors.New("-n must be at least 2, -rounds and -timeout positive, and no count negative")
	}
	for _, name := range []string{"watcher", "fetcher", "writer"} {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return fmt.Errorf("-bin: %w: run make build first", err)
		}
	}
	if o.latencies, err = parse("latencies", o.Latencies, time.ParseDuration); err != nil {
		return err
	}
	if o.fetchers, err = parse("fetchers", o.Fetchers, strconv.Atoi); err != nil {
		return err
	}
	if o.Short {
		o.Rounds = 1
	}
	o.N = max(2, short(*o, o.N))
	o.Refresh = short(*o, o.Refresh)
	return nil
}

// parse reads a list of positive values.
func parse[T int | time.Duration](flag, list string, one func(string) (T, error)) (values []T, err error) {
	for text := range strings.SplitSeq(list, ",") {
		value, err := one(text)
		if err != nil || value <= 0 {
			return nil, fmt.Errorf("-%s: %q is not a positive value", flag, text)
		}
		values = append(values, value)
	}
	return values, nil
}

// pause waits, or returns the cause if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// mustAwait polls until a condition is met, and fails after limit.
func mustAwait(ctx context.Context, what string, limit time.Duration, met func() bool) {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		return met(), nil
	})
	if err != nil {
		check(fmt.Errorf("%s: not within %s", what, limit))
	}
}

// failure ends a measurement. It is the panic of check, and failed turns it into an error.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func failed(recovered any) error {
	switch found := recovered.(type) {
	case nil:
		return nil
	case failure:
		return found
	default:
		panic(found)
	}
}

// usages maps the names of programs to their CPU time since the start, in seconds.
type usages map[string]float64

// add adds the usage of a process. Without /proc, which only Linux has, all figures of CPU time are missing.
func (u usages) add(name string, pid int) {
	if runtime.GOOS != "linux" {
		return
	}
	u[name] += must(must(procfs.NewProc(pid)).Stat()).CPUTime()
}

// cpuSince returns the milliseconds of CPU time per item for each program, given the number of items. A program
// that was not in before started at zero.
func (u usages) cpuSince(before usages, count int) map[string]float64 {
	cpu := map[string]float64{}
	for name, used := range u {
		cpu[name] = 1000 * (used - before[name]) / float64(max(count, 1))
	}
	return cpu
}

// controlPlane returns the processes of `bin/control-plane` on this machine. They run in the folder of the
// kubeconfig.
func controlPlane() map[string]int {
	found := map[string]int{}
	processes, _ := procfs.AllProcs() // none without /proc
	dir, _ := filepath.EvalSymlinks(filepath.Dir(os.Getenv("KUBECONFIG")))
	for _, process := range processes {
		name, errName := process.Comm()
		cwd, errCwd := process.Cwd() // fails for processes of other users
		if errors.Join(errName, errCwd) == nil && cwd == dir && (name == "etcd" || name == "kube-apiserver") {
			found[name] = process.PID
		}
	}
	return found
}

// self is the name of the benchmark itself.
const self = "bench"

// sum adds the usage of the named programs.
func sum(cpu map[string]float64, names ...string) (total float64) {
	for _, name := range names {
		total += cpu[name]
	}
	return total
}
