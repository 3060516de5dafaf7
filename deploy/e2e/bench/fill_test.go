package bench_test

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
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
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
	*system
	n      int
	origin string
	// bare is the namespace of the patches in a loop.
	bare string
}

var _ = It("fill: the pipeline fills ConfigMaps, and a loop patches others", func(ctx SpecContext) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(body(r.URL.Path)))
	}))
	DeferCleanup(server.Close)
	f := &filler{
		system: start(ctx), n: int(world.Number("N", "2000")), origin: server.URL, bare: env.Cluster.Namespace(ctx),
	}
	// All ConfigMaps are on one host and in one namespace, whose limits are not measured.
	verifier := "--trusted-keys=" + env.TrustedKeys
	f.fetcher(ctx, "--per-host=1024", "--namespace-share=1", verifier)
	f.service(ctx, world.Writer, "--namespace-writes=0", verifier)
	f.create(ctx, f.bare, min(f.n, maxBare), nil)
	var rounds []round
	for range world.Number("ROUNDS", "3") {
		one := f.round(ctx)
		By(fmt.Sprintf("%.0f a second, bare patches %.0f and %.0f", one.PerSecond, one.Before.PerSecond, one.After.PerSecond))
		rounds = append(rounds, one)
	}
	slices.SortFunc(rounds, func(a, b round) int { return cmp.Compare(a.Ratio, b.Ratio) })
	all := filled{N: f.n, Median: rounds[(len(rounds)-1)/2]}
	for _, one := range rounds {
		all.Ratios = append(all.Ratios, one.Ratio)
	}
	printed(all)
})

// body returns a body that depends on the path.
func body(path string) string { return strings.Repeat(path+"\n", bodySize/len(path)+1)[:bodySize] }

func configMaps(namespace string) corev1client.ConfigMapInterface {
	return env.Cluster.Client.CoreV1().ConfigMaps(namespace)
}

// create creates ConfigMaps. asks returns the annotation of each.
func (f *filler) create(ctx context.Context, namespace string, count int, asks func(name string) string) {
	GinkgoHelper()
	inParallel(count, func(n int) error {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%06d", n)}, Data: map[string]string{theirKey: theirData},
		}
		if asks != nil {
			cm.Annotations = map[string]string{annotation.DefaultKey: asks(cm.Name)}
		}
		return world.ErrorOf(configMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}))
	})
}

// used returns the usage of the system, the control plane and the benchmark.
func (f *filler) used() usages {
	GinkgoHelper()
	used := f.system.used()
	// `bin/control-plane` runs them in the folder of the kubeconfig.
	processes, _ := procfs.AllProcs() // none without /proc
	dir, _ := filepath.EvalSymlinks(filepath.Dir(env.Cluster.Kubeconfig))
	for _, one := range processes {
		name, errName := one.Comm()
		cwd, errCwd := one.Cwd() // fails for processes of other users
		if errors.Join(errName, errCwd) == nil && cwd == dir && (name == "etcd" || name == "kube-apiserver") {
			used.add(name, one.PID)
		}
	}
	used.add("bench", os.Getpid())
	return used
}

func (f *filler) round(ctx context.Context) round {
	GinkgoHelper()
	By(fmt.Sprintf("creating %d ConfigMaps while no watcher runs", f.n))
	piped := env.Cluster.Namespace(ctx)
	f.create(ctx, piped, f.n, func(name string) string { return dataKey + "=" + f.origin + "/" + name })
	r := round{Before: f.patch(ctx)}
	f.pipeline(ctx, piped, &r)
	r.After = f.patch(ctx)
	r.Ratio = 2 * r.PerSecond / (r.Before.PerSecond + r.After.PerSecond)
	return r
}

// patch measures the API server's rate of patches, each as large as a body.
func (f *filler) patch(ctx context.Context) (b bare) {
	GinkgoHelper()
	objects := suitetest.Must(configMaps(f.bare).List(ctx, metav1.ListOptions{})).Items
	before := f.used()
	value := body(fmt.Sprint(time.Now().UnixNano())) // a patch without a change is not stored
	began := time.Now()
	inParallel(len(objects), func(n int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{%q:%q}}`, objects[n].ResourceVersion, dataKey,
			value)
		return env.Cluster.Client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).Namespace(f.bare).
			Resource("configmaps").Name(objects[n].Name).Body(patch).Do(ctx).Error()
	})
	b.PerSecond = float64(len(objects)) / time.Since(began).Seconds()
	b.CPU = f.used().cpuSince(before, len(objects))
	return b
}

// pipeline runs a watcher until all ConfigMaps are filled.
func (f *filler) pipeline(ctx context.Context, namespace string, r *round) {
	GinkgoHelper()
	changes := suitetest.Must(suitetest.Must(metadata.NewForConfig(env.Cluster.Config)).
		Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).
		Watch(ctx, metav1.ListOptions{ResourceVersion: suitetest.Must(configMaps(namespace).
			List(ctx, metav1.ListOptions{Limit: 1})).ResourceVersion}))
	defer changes.Stop()
	before, began := f.used(), time.Now()
	watcher := f.service(ctx, world.Watcher, "--namespaces="+namespace, "--namespace-keys=0",
		"--signing-key="+env.SigningKey)
	names := map[string]bool{}
	for len(names) < f.n {
		var change watch.Event
		select { // without the polling of Eventually, which would limit the rate
		case change = <-changes.ResultChan():
		case <-time.After(stallTimeout):
			Fail("nothing was filled for " + stallTimeout.String())
		}
		object, is := change.Object.(*metav1.PartialObjectMetadata)
		Expect(is).To(BeTrue(), "%v", change.Object)
		s, err := status.Parse(object.Annotations[annotation.StatusKey])
		sum := sha256.Sum256([]byte(body("/" + object.Name)))
		if err == nil && s.Keys[dataKey].SHA256 == hex.EncodeToString(sum[:]) {
			names[object.Name] = true
		}
	}
	r.PerSecond = float64(f.n) / time.Since(began).Seconds()
	r.CPU = f.used().cpuSince(before, f.n)
	for _, name := range append(world.Services(), "nats") {
		r.OwnCPU += r.CPU[name]
	}
	Expect(watcher.Kill()).To(Succeed())
	f.programs = slices.DeleteFunc(f.programs, func(p *process.Process) bool { return p == watcher })
	for _, cm := range suitetest.Must(configMaps(namespace).List(ctx, metav1.ListOptions{})).Items {
		Expect(cm.Data).To(Equal(map[string]string{dataKey: body("/" + cm.Name), theirKey: theirData}), cm.Name)
	}
}
