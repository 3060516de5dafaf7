// Command bench measures in the cluster of $KUBECONFIG how fast and at what cost the assembled system fills and
// refreshes ConfigMaps, and the effect of a slow host. The baselines from the same run are patches in a loop, and the
// slots of a host.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"
)

// options are the flags.
type options struct {
	n, rounds, refresh       int
	slowHost, short          bool
	latencyList, fetcherList string
	bin, file                string
	timeout                  time.Duration

	fetchers  []int
	latencies []time.Duration
	began     time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{began: time.Now()}
	flag.IntVar(&o.n, "n", 2000, "number of ConfigMaps in a round")
	flag.IntVar(&o.rounds, "rounds", 3,
		"number of rounds, with the median as the result (with -refresh: refreshes of each key)")
	flag.IntVar(&o.refresh, "refresh", 0, "measure the cost of refreshing this many unchanged keys every 10s")
	flag.BoolVar(&o.slowHost, "slow-host", false, "measure the slots in use of a slow host and the timer messages per GET")
	flag.StringVar(&o.latencyList, "latencies", "1ms,100ms,1s,10s", "with -slow-host: latencies of the host")
	flag.StringVar(&o.fetcherList, "fetchers", "1,2,4,8", "with -slow-host: numbers of fetchers")
	flag.BoolVar(&o.short, "short", false, "reduce everything to a fiftieth, as a quick check")
	flag.StringVar(&o.bin, "bin", "bin", "folder with watcher, fetcher and writer")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "maximum duration of the run")
	flag.StringVar(&o.file, "json", "",
		"file for the figures, an array with one entry per mode (default: standard output)")
	flag.Parse()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// document has the figures of one mode.
type document struct {
	Mode    string `json:"mode"`
	Figures any    `json:"figures"`
}

// run measures the modes that the flags select, or fill if they select none.
func (o *options) run(ctx context.Context) (err error) {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err := o.complete(); err != nil {
		return err
	}
	out := os.Stdout
	if o.file != "" {
		if out, err = os.OpenFile(o.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("-json: %w", err)
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after -timeout=%s", o.timeout))
	defer cancel()
	var documents []document
	for _, mode := range []struct {
		name    string
		measure func(context.Context, options, func(any))
		wanted  bool
	}{
		{"fill", measureFill, o.short || o.refresh == 0 && !o.slowHost},
		{"refresh", measureRefresh, o.refresh > 0},
		{"slow-host", measureSlowHost, o.slowHost},
	} {
		if !mode.wanted || err != nil {
			continue
		}
		var figures any // those so far if it fails
		err = caught(func() { mode.measure(ctx, *o, func(so any) { figures = so }) })
		if err != nil {
			err = fmt.Errorf("%s: %w", mode.name, err)
		}
		if figures != nil {
			documents = append(documents, document{mode.name, figures})
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return errors.Join(err, encoder.Encode(documents))
}

// caught returns the failure of a measurement.
func caught(measure func()) (err error) {
	defer func() { err = failed(recover()) }()
	measure()
	return nil
}

// progress prints the current step.
func (o options) progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(o.began).Seconds(), fmt.Sprintf(format, arguments...))
}

// part is the fraction that a short run measures.
const part = 0.02

// short returns n, reduced in a short run.
func short[T int | time.Duration](o options, n T) T {
	if o.short {
		return T(float64(n) * part)
	}
	return n
}

// complete checks the options, applies -short, and returns the first error.
func (o *options) complete() (err error) {
	if o.n < 2 || o.rounds < 1 || o.refresh < 0 || o.timeout <= 0 {
		return errors.New("-n must be at least 2, -rounds and -timeout positive, and no count negative")
	}
	for _, name := range []string{"watcher", "fetcher", "writer"} {
		if _, err := os.Stat(filepath.Join(o.bin, name)); err != nil {
			return fmt.Errorf("-bin: %w: run make build first", err)
		}
	}
	if o.latencies, err = parse("latencies", o.latencyList, time.ParseDuration); err != nil {
		return err
	}
	if o.fetchers, err = parse("fetchers", o.fetcherList, strconv.Atoi); err != nil {
		return err
	}
	if o.short {
		o.rounds = 1
	}
	o.n, o.refresh = max(2, short(*o, o.n)), short(*o, o.refresh)
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
