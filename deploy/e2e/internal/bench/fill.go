package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

const (
	// dataKey is filled, and theirKey belongs to somebody else.
	dataKey   = "my-data"
	theirKey  = "theirs"
	theirData = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	// bodySize is that of each body and of the value of each bare patch.
	bodySize = 256
	// maxBare is the maximum number of bare patches, which take some seconds.
	maxBare = 5000
	// stallTimeout is how long nothing may be filled.
	stallTimeout = 3 * time.Minute
)

// placement says which processors the programs run on.
type placement string

const (
	shared placement = "all on all processors"
	apart  placement = "control plane on one processor, the rest on another"
)

// fill compares rounds for each count of ConfigMaps.
type fill []filled

// filled are the rounds with one count and one placement.
type filled struct {
	N         int       `json:"n"`
	Placement placement `json:"placement"`
	Rounds    []round   `json:"rounds"`
	// Median is the index of the round with the median ratio.
	Median int `json:"median"`
	// Memory at the end, by program.
	Memory usages `json:"memory"`
	// Idle is the time from the annotation of one ConfigMap to its data.
	Idle *idle `json:"idle,omitempty"`
}

// round compares the pipeline with a loop that patches, before and after it, since
// other work on the machine comes and goes.
type round struct {
	Before bare `json:"bareBefore"`
	After  bare `json:"bareAfter"`
	// PerSecond counts from the start of the watcher, FillingPerSecond from the first
	// ConfigMap filled.
	PerSecond        float64 `json:"perSecond"`
	FillingPerSecond float64 `json:"fillingPerSecond"`
	// Ratio is what the pipeline reaches of the rate of bare patches, and BoundRatio what it
	// could reach if no processor was ever idle. If apart, only the control plane counts.
	Ratio      float64 `json:"ratio"`
	BoundRatio float64 `json:"boundRatio"`
	// Calls are requests about ConfigMaps and Events.
	Calls float64            `json:"callsPerConfigMap"`
	CPU   map[string]float64 `json:"cpuMillisecondsPerConfigMap"`
}

// bare is what the API server does for a loop that patches.
type bare struct {
	PerSecond float64            `json:"perSecond"`
	CPU       map[string]float64 `json:"cpuMillisecondsPerPatch"`
}

// idle are quantiles.
type idle struct {
	ConfigMaps int     `json:"configMaps"`
	P50        float64 `json:"p50Milliseconds"`
	P99        float64 `json:"p99Milliseconds"`
	Max        float64 `json:"maxMilliseconds"`
}

// filler fills ConfigMaps of one count.
type filler struct {
	Options
	cluster *cluster
	system  *system
	server  *httptest.Server
	control map[string]int
	// bare and piped are namespaces. changes are those in the latter.
	bare, piped string
	changes     <-chan change
}

// measureFill measures each count with NATS and services of its own.
func measureFill(ctx context.Context, o Options) (Figures, error) {
	var all fill
	for _, n := range o.counts {
		err := withFiller(ctx, o, n, func(f *filler) error {
			for _, p := range f.placements() {
				figures, err := f.compare(ctx, p)
				if err != nil {
					return err
				}
				all = append(all, figures)
			}
			return nil
		})
		if err != nil {
			return all, fmt.Errorf("%d ConfigMaps: %w", n, err)
		}
	}
	return all, nil
}

// withFiller starts the system, and removes all that was created.
func withFiller(ctx context.Context, o Options, n int, do func(*filler) error) (err error) {
	f := &filler{Options: o, control: controlPlane(), server: httptest.NewServer(http.HandlerFunc(respond))}
	f.N = n
	defer f.server.Close()
	if f.cluster, err = connect(); err != nil {
		return err
	}
	defer func() {
		o.Progress("deleting the ConfigMaps")
		err = errors.Join(err, f.cluster.remove(context.WithoutCancel(ctx)))
	}()
	if f.bare, err = f.cluster.namespace(ctx); err != nil {
		return err
	}
	o.Progress("starting NATS, fetcher and writer")
	if f.system, err = startSystem(ctx, o.Bin); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.system.stop(ctx)) }()
	// All ConfigMaps are on one host and in one namespace, whose limits are not measured.
	err = f.system.fetcher(ctx, "--per-host=1024", "--namespace-share=1", f.system.verifier)
	if err == nil {
		err = f.system.service(ctx, "writer", "--namespace-writes=0", f.system.verifier)
	}
	if err == nil {
		err = f.cluster.create(ctx, f.bare, min(n, maxBare), func(i int) *corev1.ConfigMap { return configMap("bare", i) })
	}
	if err != nil {
		return err
	}
	return do(f)
}

// respond serves the body of a path.
func respond(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte(body(r.URL.Path))) //nolint:gosec // G705: no browser reads it
}

func body(path string) string { return strings.Repeat(path+"\n", bodySize/len(path)+1)[:bodySize] }

func configMap(kind string, n int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%06d", kind, n)}, Data: map[string]string{theirKey: theirData},
	}
}

// request returns the annotation that asks for a body.
func (f *filler) request(name string) map[string]string {
	return map[string]string{annotation.DefaultKey: dataKey + "=" + f.server.URL + "/" + name}
}

func (f *filler) annotated(kind string, n int) *corev1.ConfigMap {
	cm := configMap(kind, n)
	cm.Annotations = f.request(cm.Name)
	return cm
}

// placements returns those that are compared.
func (f *filler) placements() []placement {
	if f.Apart && (len(processors()) < 2 || len(f.control) < 2) {
		f.Progress("-apart needs Linux, two processors, and the control plane that make bench starts")
		f.Apart = false
	}
	if f.Apart {
		return []placement{shared, apart}
	}
	return []placement{shared}
}

// place moves all programs. A program that is started later runs where the benchmark does.
func (f *filler) place(p placement) (err error) {
	if !f.Apart {
		return nil
	}
	control, others := processors(), processors()
	if p == apart {
		control, others = control[:1], others[1:2]
	}
	for _, pid := range f.control {
		err = errors.Join(err, pin(pid, control))
	}
	for _, p := range f.system.programs {
		err = errors.Join(err, pin(p.PID(), others))
	}
	return errors.Join(err, pin(os.Getpid(), others))
}

// compare measures the rounds of one placement, the memory after them, and the idle system.
func (f *filler) compare(ctx context.Context, p placement) (r filled, err error) {
	r = filled{N: f.N, Placement: p}
	all := processors()
	if err := f.place(p); err != nil {
		return r, err
	}
	for i := range f.Rounds {
		f.Progress("%s, round %d of %d: creating %d ConfigMaps", p, i+1, f.Rounds, f.N)
		one, err := f.round(ctx, p)
		if err != nil {
			return r, err
		}
		f.Progress("%.0f a second, bare patches %.0f and %.0f", one.PerSecond, one.Before.PerSecond, one.After.PerSecond)
		r.Rounds = append(r.Rounds, one)
	}
	if p == apart { // the benchmark needs all processors to give them back
		if err := pin(os.Getpid(), all); err != nil {
			return r, err
		}
	}
	byRatio := make([]int, len(r.Rounds))
	for i := range byRatio {
		byRatio[i] = i
	}
	slices.SortFunc(byRatio, func(i, j int) int { return cmp.Compare(r.Rounds[i].Ratio, r.Rounds[j].Ratio) })
	r.Median = byRatio[(len(byRatio)-1)/2]
	if r.Memory, err = f.system.used(); err != nil || f.Idle == 0 || p == apart {
		return r, err
	}
	r.Idle, err = f.idle(ctx)
	return r, err
}

// moment is what had been used at one time.
type moment struct {
	used  usages
	calls int
}

func (f *filler) moment(ctx context.Context) (m moment, err error) {
	if m.used, err = f.system.used(); err != nil {
		return m, err
	}
	for name, pid := range f.control {
		err = errors.Join(err, m.used.add(name, pid))
	}
	if err = errors.Join(err, m.used.add(self, os.Getpid())); err != nil {
		return m, err
	}
	m.calls, err = f.cluster.calls(ctx)
	return m, err
}

func (f *filler) round(ctx context.Context, p placement) (r round, err error) {
	if err := f.prepare(ctx); err != nil {
		return r, err
	}
	if r.Before, err = f.patch(ctx); err != nil {
		return r, err
	}
	if err := f.pipeline(ctx, &r); err != nil {
		return r, err
	}
	if r.After, err = f.patch(ctx); err != nil {
		return r, err
	}
	r.Ratio = 2 * r.PerSecond / (r.Before.PerSecond + r.After.PerSecond)
	var names []string
	if p == apart {
		names = sorted(f.control)
	}
	if total := sum(r.CPU, names...); total > 0 {
		r.BoundRatio = (sum(r.Before.CPU, names...) + sum(r.After.CPU, names...)) / 2 / total
	}
	return r, f.system.err()
}

// prepare creates the ConfigMaps while there is no watcher.
func (f *filler) prepare(ctx context.Context) (err error) {
	if err := f.system.remove(ctx, "watcher"); err != nil {
		return err
	}
	if f.piped, err = f.cluster.namespace(ctx); err != nil {
		return err
	}
	return f.cluster.create(ctx, f.piped, f.N, func(n int) *corev1.ConfigMap { return f.annotated("piped", n) })
}

// patch measures how many patches of the size of a body the API server takes.
func (f *filler) patch(ctx context.Context) (b bare, err error) {
	objects, err := f.cluster.list(ctx, f.bare)
	if err != nil {
		return b, err
	}
	before, err := f.moment(ctx)
	if err != nil {
		return b, err
	}
	client, value := f.cluster.CoreV1().RESTClient(), body(fmt.Sprint(time.Now().UnixNano())) // a patch without effect is not stored
	began := time.Now()
	err = inParallel(ctx, len(objects), func(ctx context.Context, n int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{%q:%q}}`, objects[n].ResourceVersion, dataKey, value)
		return client.Patch(types.StrategicMergePatchType).Namespace(f.bare).
			Resource("configmaps").Name(objects[n].Name).Body(patch).Do(ctx).Error()
	})
	if err != nil {
		return b, fmt.Errorf("patch a ConfigMap: %w", err)
	}
	b.PerSecond = float64(len(objects)) / time.Since(began).Seconds()
	after, err := f.moment(ctx)
	b.CPU = after.used.cpuSince(before.used, len(objects))
	return b, err
}

// pipeline starts the watcher, and waits until all ConfigMaps are filled.
func (f *filler) pipeline(ctx context.Context, r *round) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var err error
	if f.changes, err = f.cluster.watch(watching, f.piped); err != nil {
		return err
	}
	before, err := f.moment(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.system.service(ctx, "watcher", "--namespaces="+f.piped, f.system.signer); err != nil {
		return err
	}
	var first, last time.Time
	names := map[string]bool{}
	for len(names) < f.N {
		one, err := f.next(ctx)
		if err != nil {
			return fmt.Errorf("%d of %d ConfigMaps were filled: %w", len(names), f.N, err)
		}
		if names[one.Name] = true; first.IsZero() {
			first = one.at
		}
		last = one.at
	}
	after, err := f.moment(ctx)
	if err != nil {
		return err
	}
	r.PerSecond = float64(f.N) / last.Sub(began).Seconds()
	r.FillingPerSecond = float64(f.N-1) / last.Sub(first).Seconds()
	r.Calls = float64(after.calls-before.calls) / float64(f.N)
	r.CPU = after.used.cpuSince(before.used, f.N)
	return f.verify(ctx)
}

// next waits until a ConfigMap is filled. Its status is written in the same patch.
func (f *filler) next(ctx context.Context) (change, error) {
	stalled := time.NewTimer(stallTimeout)
	defer stalled.Stop()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case one := <-f.changes:
			s, err := status.Parse(one.Annotations[annotation.StatusKey])
			sum := sha256.Sum256([]byte(body("/" + one.Name)))
			if err == nil && s.Keys[dataKey].SHA256 == hex.EncodeToString(sum[:]) {
				return one, nil
			}
		case <-ticker.C:
			if err := f.system.err(); err != nil {
				return change{}, err
			}
		case <-stalled.C:
			return change{}, fmt.Errorf("%w: nothing was filled for %s", errWrong, stallTimeout)
		case <-ctx.Done():
			return change{}, context.Cause(ctx)
		}
	}
}

// verify reads all that the ConfigMaps hold.
func (f *filler) verify(ctx context.Context) error {
	for options := (metav1.ListOptions{Limit: 1000}); ; {
		list, err := f.cluster.CoreV1().ConfigMaps(f.piped).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		for i := range list.Items {
			cm := &list.Items[i]
			if len(cm.Data) != 2 || cm.Data[dataKey] != body("/"+cm.Name) || cm.Data[theirKey] != theirData {
				return fmt.Errorf("%w: ConfigMap %s does not hold the body and the key of somebody else", errWrong, cm.Name)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// idle annotates ConfigMaps one by one, and measures from each response to the data.
func (f *filler) idle(ctx context.Context) (*idle, error) {
	f.Progress("annotating %d ConfigMaps one by one", f.Idle)
	if err := f.cluster.create(ctx, f.piped, f.Idle, func(n int) *corev1.ConfigMap { return configMap("idle", n) }); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var err error
	if f.changes, err = f.cluster.watch(watching, f.piped); err != nil {
		return nil, err
	}
	var times []float64
	for n := range f.Idle {
		if err := pause(ctx, 50*time.Millisecond); err != nil { // the system comes to rest
			return nil, err
		}
		name := configMap("idle", n).Name
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": f.request(name)}})
		if err == nil {
			_, err = f.cluster.CoreV1().ConfigMaps(f.piped).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			return nil, fmt.Errorf("annotate a ConfigMap: %w", err)
		}
		began := time.Now()
		filled, err := f.awaitOne(ctx, name)
		if err != nil {
			return nil, err
		}
		times = append(times, 1000*filled.Sub(began).Seconds())
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(q*float64(len(times)-1))] }
	return &idle{ConfigMaps: f.Idle, P50: at(0.5), P99: at(0.99), Max: at(1)}, nil
}

// awaitOne returns when the watch delivered a ConfigMap with its data.
func (f *filler) awaitOne(ctx context.Context, name string) (time.Time, error) {
	for {
		if one, err := f.next(ctx); err != nil || one.Name == name {
			return one.at, err
		}
	}
}

// Table has a column for each count and placement.
func (all fill) Table() string {
	if len(all) == 0 {
		return ""
	}
	heads := []string{"ConfigMaps, bodies of " + fmt.Sprint(bodySize) + " bytes"}
	for _, r := range all {
		heads = append(heads, fmt.Sprintf("%d, %s", r.N, r.Placement))
	}
	t := newTable(heads...)
	row := func(name, format string, of func(r *filled, median *round) any) {
		each(t, all, name, format, func(r filled) any { return of(&r, &r.Rounds[r.Median]) })
	}
	row("filled a second", "%.0f", func(_ *filled, m *round) any { return m.PerSecond })
	row("from the first filled on", "%.0f", func(_ *filled, m *round) any { return m.FillingPerSecond })
	row("bare patches a second, before", "%.0f", func(_ *filled, m *round) any { return m.Before.PerSecond })
	row("and after", "%.0f", func(_ *filled, m *round) any { return m.After.PerSecond })
	row("filled ÷ bare", "%s", func(r *filled, m *round) any {
		less := func(a, b round) int { return cmp.Compare(a.Ratio, b.Ratio) }
		return fmt.Sprintf("%.2f (%.2f to %.2f)", m.Ratio, slices.MinFunc(r.Rounds, less).Ratio, slices.MaxFunc(r.Rounds, less).Ratio)
	})
	row("its bound by processor time", "%.2f", func(_ *filled, m *round) any { return m.BoundRatio })
	row("API calls for each", "%.2f", func(_ *filled, m *round) any { return m.Calls })
	first := &all[0]
	for _, name := range sorted(first.Rounds[first.Median].CPU) {
		row("CPU of "+name+" for each, ms", "%.2f", func(_ *filled, m *round) any { return m.CPU[name] })
	}
	row("CPU of watcher, fetcher, writer and nats for each, ms", "%.2f", func(_ *filled, m *round) any {
		return sum(m.CPU, "watcher", "fetcher", "writer", "nats")
	})
	row("CPU of kube-apiserver for a bare patch, ms", "%.2f", func(_ *filled, m *round) any {
		return (m.Before.CPU["kube-apiserver"] + m.After.CPU["kube-apiserver"]) / 2
	})
	for _, name := range sorted(first.Memory) {
		row("RSS of "+name+", MiB", "%.0f", func(r *filled, _ *round) any { return float64(r.Memory[name].RSS) / (1 << 20) })
	}
	row("annotation to data when idle, ms", "%s", func(r *filled, _ *round) any {
		if r.Idle == nil {
			return ""
		}
		return fmt.Sprintf("p50 %.1f, p99 %.1f", r.Idle.P50, r.Idle.P99)
	})
	return t.String()
}
