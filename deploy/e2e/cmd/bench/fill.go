package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// dataKey is the requested key, and theirKey belongs to another owner.
	dataKey   = "my-data"
	theirKey  = "theirs"
	theirData = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	// bodySize is the size of each body and of each bare patch.
	bodySize = 256
	// maxBare is the maximum number of bare patches, which take some seconds.
	maxBare = 5000
	// stallTimeout is the maximum time without a newly filled ConfigMap.
	stallTimeout = 3 * time.Minute
)

// filled has the rounds.
type filled struct {
	N int `json:"n"`
	// Ratios of all rounds in ascending order, and the round with the median.
	Ratios []float64 `json:"ratios"`
	Median round     `json:"medianRound"`
}

// round measures a patching loop before and after the pipeline, because other load on the machine
// varies.
type round struct {
	Before bare `json:"bareBefore"`
	After  bare `json:"bareAfter"`
	// PerSecond counts from the start of the watcher.
	PerSecond float64 `json:"perSecond"`
	// Ratio is the rate of the pipeline divided by the rate of bare patches.
	Ratio float64            `json:"ratio"`
	CPU   map[string]float64 `json:"cpuMillisecondsPerConfigMap"`
	// OwnCPU is the CPU time of watcher, fetcher, writer and NATS.
	OwnCPU float64 `json:"ownCpuMillisecondsPerConfigMap"`
}

// bare is the API server's performance for patches in a loop.
type bare struct {
	PerSecond float64            `json:"perSecond"`
	CPU       map[string]float64 `json:"cpuMillisecondsPerPatch"`
}

// filler measures how fast ConfigMaps are filled.
type filler struct {
	options
	cluster *cluster
	system  *system
	server  *httptest.Server
	control map[string]int
	// bare and piped are namespaces. changes are the changes in piped.
	bare, piped string
	changes     <-chan change
}

// measureFill starts the system, measures the rounds, and deletes all objects at the end.
func measureFill(ctx context.Context, o options, report func(any)) {
	f := &filler{options: o, control: controlPlane(), server: httptest.NewServer(http.HandlerFunc(respond))}
	defer f.server.Close()
	f.cluster = connect()
	defer func() {
		err := failed(recover())
		o.progress("deleting the ConfigMaps")
		check(errors.Join(err, f.cluster.remove(context.WithoutCancel(ctx))))
	}()
	f.bare = f.cluster.namespace(ctx)
	o.progress("starting NATS, fetcher and writer")
	f.system = &system{}
	defer f.system.stop(ctx)
	f.system.init(ctx, o.bin)
	// All ConfigMaps are on one host and in one namespace, whose limits are not measured.
	f.system.fetcher(ctx, "--per-host=1024", "--namespace-share=1", f.system.verifier)
	f.system.service(ctx, "writer", "--namespace-writes=0", f.system.verifier)
	f.cluster.create(ctx, f.bare, min(o.n, maxBare), func(i int) *corev1.ConfigMap { return configMap("bare", i) })
	report(f.compare(ctx))
}

// respond serves a body that depends on the path.
func respond(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte(body(r.URL.Path))) //nolint:gosec // G705: no browser reads it
}

func body(path string) string { return strings.Repeat(path+"\n", bodySize/len(path)+1)[:bodySize] }

func configMap(kind string, n int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%06d", kind, n)}, Data: map[string]string{theirKey: theirData},
	}
}

// request returns the annotation that requests a body.
func (f *filler) request(name string) map[string]string {
	return map[string]string{annotation.DefaultKey: dataKey + "=" + f.server.URL + "/" + name}
}

func (f *filler) annotated(kind string, n int) *corev1.ConfigMap {
	cm := configMap(kind, n)
	cm.Annotations = f.request(cm.Name)
	return cm
}

// compare measures the rounds.
func (f *filler) compare(ctx context.Context) filled {
	var rounds []round
	for i := range f.rounds {
		f.progress("round %d of %d: creating %d ConfigMaps", i+1, f.rounds, f.n)
		one := f.round(ctx)
		f.progress("%.0f a second, bare patches %.0f and %.0f", one.PerSecond, one.Before.PerSecond, one.After.PerSecond)
		rounds = append(rounds, one)
	}
	slices.SortFunc(rounds, func(a, b round) int { return cmp.Compare(a.Ratio, b.Ratio) })
	r := filled{N: f.n, Median: rounds[(len(rounds)-1)/2]}
	for i := range rounds {
		r.Ratios = append(r.Ratios, rounds[i].Ratio)
	}
	return r
}

// used returns the usage of the system, the control plane and the benchmark.
func (f *filler) used() usages {
	used := f.system.used()
	for name, pid := range f.control {
		used.add(name, pid)
	}
	used.add(self, os.Getpid())
	return used
}

func (f *filler) round(ctx context.Context) round {
	f.prepare(ctx)
	r := round{Before: f.patch(ctx)}
	f.pipeline(ctx, &r)
	r.After = f.patch(ctx)
	r.Ratio = 2 * r.PerSecond / (r.Before.PerSecond + r.After.PerSecond)
	f.system.check()
	return r
}

// prepare creates the ConfigMaps while no watcher runs.
func (f *filler) prepare(ctx context.Context) {
	f.system.remove(ctx, "watcher")
	f.piped = f.cluster.namespace(ctx)
	f.cluster.create(ctx, f.piped, f.n, func(n int) *corev1.ConfigMap { return f.annotated("piped", n) })
}

// patch measures the API server's rate of patches, each as large as a body.
func (f *filler) patch(ctx context.Context) (b bare) {
	objects, before := must(f.cluster.list(ctx, f.bare)), f.used()
	// a patch without a change is not stored
	client, value := f.cluster.CoreV1().RESTClient(), body(fmt.Sprint(time.Now().UnixNano()))
	began := time.Now()
	check(inParallel(ctx, len(objects), func(ctx context.Context, n int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{%q:%q}}`, objects[n].ResourceVersion, dataKey,
			value)
		return client.Patch(types.StrategicMergePatchType).Namespace(f.bare).
			Resource("configmaps").Name(objects[n].Name).Body(patch).Do(ctx).Error()
	}))
	b.PerSecond = float64(len(objects)) / time.Since(began).Seconds()
	b.CPU = f.used().cpuSince(before, len(objects))
	return b
}

// pipeline starts the watcher, and waits until all ConfigMaps are filled.
func (f *filler) pipeline(ctx context.Context, r *round) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	f.changes = f.cluster.watch(watching, f.piped)
	before, began := f.used(), time.Now()
	f.system.service(ctx, "watcher", "--namespaces="+f.piped, "--namespace-keys=0", f.system.signer)
	var last time.Time
	names := map[string]bool{}
	for len(names) < f.n {
		one := f.next(ctx)
		names[one.Name], last = true, one.at
	}
	r.PerSecond = float64(f.n) / last.Sub(began).Seconds()
	r.CPU = f.used().cpuSince(before, f.n)
	r.OwnCPU = sum(r.CPU, "watcher", "fetcher", "writer", "nats")
	f.verify(ctx)
}

// next waits until a ConfigMap is filled. Its status is written in the same patch.
func (f *filler) next(ctx context.Context) change {
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
				return one
			}
		case <-ticker.C:
			f.system.check()
		case <-stalled.C:
			check(fmt.Errorf("nothing was filled for %s", stallTimeout))
		case <-ctx.Done():
			check(context.Cause(ctx))
		}
	}
}

// verify checks the content of all ConfigMaps.
func (f *filler) verify(ctx context.Context) {
	list := must(f.cluster.CoreV1().ConfigMaps(f.piped).List(ctx, metav1.ListOptions{}))
	for i := range list.Items {
		cm := &list.Items[i]
		if len(cm.Data) != 2 || cm.Data[dataKey] != body("/"+cm.Name) || cm.Data[theirKey] != theirData {
			check(fmt.Errorf("ConfigMap %s lacks the body or the key of the other owner", cm.Name))
		}
	}
}
