package keeper

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestKeeper(t *testing.T) { suitetest.Run(t, "Keeper") }

// patience is how long keeper may take to report on all Watchers of a spec.
const patience = time.Minute

// rig is a keeper without its queue. The spec decides when it reconciles.
type rig struct {
	*keeper
	clock     *clocktesting.FakePassiveClock
	namespace string
	core      corev1client.CoreV1Interface
	resources *watchv1.Namespaced
	registry  *prometheus.Registry
	writes    atomic.Int64
	// before, if set, is called before each request of keeper.
	before atomic.Pointer[func(*http.Request)]
}

// count counts the writes.
func (r *rig) count(next http.RoundTripper) http.RoundTripper {
	return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
		if before := r.before.Load(); before != nil {
			(*before)(request)
		}
		if request.Method != http.MethodGet {
			r.writes.Add(1)
		}
		return next.RoundTrip(request)
	})
}

// begin creates a keeper without state.
func (r *rig) begin() {
	GinkgoHelper()
	var c Config
	flags := pflag.NewFlagSet("keeper", pflag.ContinueOnError)
	c.BindFlags(flags)
	Expect(flags.Parse([]string{"--sidecars", "--namespaces=" + r.namespace})).To(Succeed())
	counted := rest.CopyConfig(kubetest.Config(GinkgoTB()))
	counted.Wrap(r.count)
	clients := suitetest.Must(connect(counted))
	DeferCleanup(clients.Close)
	r.registry = prometheus.NewRegistry()
	rt := &process.Runtime{Log: zerolog.New(GinkgoWriter), Health: process.NewHealth(), Metrics: r.registry}
	r.keeper = suitetest.Must(newKeeper(rt, c, clients, newMetrics(r.registry, c), r.clock))
}

// run watches until the end of the spec.
func (r *rig) run(ctx context.Context) {
	GinkgoHelper()
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	group := &errgroup.Group{}
	r.watch(running, group)
	DeferCleanup(func() { cancel(); Expect(group.Wait()).To(Succeed()) })
	for _, synced := range []<-chan struct{}{
		r.watchers.Synced(), r.targets.Synced(), r.namespaces.Synced(), r.pods.Synced(),
	} {
		Eventually(ctx, synced).WithTimeout(patience).Should(BeClosed())
	}
}

// apply creates a Watcher from a spec in YAML.
func (r *rig) apply(ctx context.Context, name, spec string) {
	GinkgoHelper()
	suitetest.Must(kubetest.ApplyWatcher(ctx, r.resources, name, spec))
}

// edit merges a patch into a Watcher.
func (r *rig) edit(ctx context.Context, name, patch string) {
	GinkgoHelper()
	suitetest.Must(r.resources.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// name returns the full name of an object.
func (r *rig) name(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// eventuallyHas waits until keeper knows a generation of a Watcher.
func (r *rig) eventuallyHas(ctx context.Context, name string, generation int64) {
	GinkgoHelper()
	Eventually(ctx, func() int64 {
		if w := r.watchers.Get(r.name(name)); w != nil {
			return w.Plan.Generation
		}
		return 0
	}).WithTimeout(patience).Should(Equal(generation))
}

// once makes a change before keeper's first request for a single object whose path and field
// selector end in the suffix.
func (r *rig) once(method, ending string, change func()) {
	r.before.Store(new(func(request *http.Request) {
		if request.Method == method && strings.HasSuffix(request.URL.Path+"?"+request.URL.Query().Get("fieldSelector"),
			ending) {
			r.before.Store(nil)
			change()
		}
	}))
}

// byHand merges a patch into a ConfigMap like kubectl edit.
func (r *rig) byHand(ctx context.Context, name, patch string) {
	GinkgoHelper()
	r.patch(ctx, "kubectl-edit", name, []byte(patch))
}

// patch merges a patch into a ConfigMap as a field manager.
func (r *rig) patch(ctx context.Context, manager, name string, patch []byte) {
	GinkgoHelper()
	suitetest.Must(r.core.ConfigMaps(r.namespace).Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager}))
}

// data returns the data of a ConfigMap.
func (r *rig) data(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	return suitetest.Must(r.core.ConfigMaps(r.namespace).Get(ctx, name, metav1.GetOptions{})).Data
}

// reconcileAll reconciles Watchers once.
func (r *rig) reconcileAll(ctx context.Context, g Gomega, names []string) {
	GinkgoHelper()
	for _, name := range names {
		_, err := r.reconcile(ctx, r.name(name))
		g.Expect(err).NotTo(HaveOccurred(), name)
	}
}

// reports writes the status of key a like the writer. URL stands for the URL of the source.
func (r *rig) reports(ctx context.Context, configMap, entry string) {
	GinkgoHelper()
	text := `{"a":` + strings.ReplaceAll(entry, "URL", "https://rules.example.com") + `}`
	r.patch(ctx, annotation.FieldManager, configMap, suitetest.Must(json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation.StatusKey: text}},
		"data":     map[string]string{"a": "body"},
	})))
}

// ready returns the Ready condition as status/reason, and the reason of Fresh.
func (r *rig) ready(ctx context.Context, g Gomega, name string) string {
	GinkgoHelper()
	w, err := r.clients.Watcher(ctx, r.name(name))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w).NotTo(BeNil())
	conditions := w.Status.Conditions
	ready := meta.FindStatusCondition(conditions, watchv1.ConditionReady)
	fresh := meta.FindStatusCondition(conditions, watchv1.ConditionFresh)
	if ready == nil || fresh == nil {
		return ""
	}
	return string(ready.Status) + "/" + ready.Reason + " " + fresh.Reason
}

// sidecarRuns creates a pod with the running sidecar of a Watcher.
func (r *rig) sidecarRuns(ctx context.Context, watcher string) {
	GinkgoHelper()
	suitetest.Must(r.core.ServiceAccounts(r.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}))
	pod := suitetest.Must(r.core.Pods(r.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Labels: map[string]string{watchv1.InjectedLabel: "true"},
			Annotations: map[string]string{watchv1.InjectedAnnotation: watcher + "=1"},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{
				Name: "watch", Image: "registry.example/watch", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
			}},
			Containers: []corev1.Container{{Name: "app", Image: "registry.example/app"}},
		},
	}, metav1.CreateOptions{}))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "watch", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.clock.Now())}},
	}}
	suitetest.Must(r.core.Pods(r.namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
}

func newRig(ctx context.Context) *rig {
	GinkgoHelper()
	admin := kubetest.Config(GinkgoTB())
	r := &rig{clock: clocktesting.NewFakePassiveClock(time.Now())}
	client := kubernetes.NewForConfigOrDie(admin)
	r.core = client.CoreV1()
	r.namespace = kubetest.Namespace(ctx, GinkgoTB(), client, "keeper-",
		map[string]string{watchv1.InjectLabel: watchv1.InjectValue})
	r.resources = kubetest.Watchers(ctx, GinkgoTB(), admin).In(r.namespace)
	r.begin()
	return r
}
