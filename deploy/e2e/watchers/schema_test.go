package watchers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// strictDryRun makes the API server check an object, as strictly as kubectl apply, without storing it.
var strictDryRun = metav1.CreateOptions{
	DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
}

// numberedSources returns n sources in YAML.
func numberedSources(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "{key: k%d, url: a.example.com}, ", i)
	}
	return "sources: [" + text.String() + "]"
}

// refused has pairs of a spec that the schema rejects and the message.
var refused = []string{
	`suspend: true`, "a Watcher needs at least one of configData, configBinaryData, sources and container",
	`configData: {a: b}, configBinaryData: {a: YQ==}`,
	"a key is in both configData and configBinaryData; remove it from one of them",
	`configData: {a: b}, sources: [{key: a, url: x.example.com}]`,
	"a key is in both sources and configData; remove it from one of them",
	`configBinaryData: {a: YQ==}, sources: [{key: a, url: x.example.com}]`,
	"a key is in both sources and configBinaryData; remove it from one of them",
	`sources: [{key: a, url: x.example.com}, {key: a, url: y.example.com}]`,
	`spec.sources[1]: Duplicate value: {"key":"a"}`,
	`configData: {"..": b}`, "spec.configData: Invalid value: a key consists of 1 to 253 letters",
	`sources: [{key: "..", url: x.example.com}]`,
	"spec.sources[0].key: Invalid value: \"..\": a key consists of 1 to 253 letters",
	`configBinaryData: {a/b: YQ==}`, "spec.configBinaryData: Invalid value: a key consists of 1 to 253 letters",
	`configData: {` + strings.Repeat("k", 254) + `: x}`,
	"spec.configData: Invalid value: a key consists of 1 to 253 letters",
	`sources: [{key: ` + strings.Repeat("k", 254) + `, url: x.example.com}]`,
	"spec.sources[0].key: Too long: may not be ",
	`sources: [{key: a, url: "x.example.com b=y"}]`,
	"a url contains only printable ASCII and no white space; escape other characters, as in %20",
	`sources: [{key: a, url: "https://u:p@x.example.com"}]`, "a url must not contain a user name or a password",
	`sources: [{key: a, url: "u@x.example.com"}]`, "a url must not contain a user name or a password",
	`sources: [{key: a, url: "ftp://x.example.com"}]`, "the scheme of a url is http or https",
	`sources: [{key: a, url: "https://x.example.com/` + strings.Repeat("y", 2049-22) + `"}]`,
	"spec.sources[0].url: Too long: may not be ",
	`sources: [{key: a, url: "https://é.example.com"}]`, "only printable ASCII",
	`interval: 5s, configData: {a: b}`,
	`spec.interval: Invalid value: "5s": interval is a duration such as 10m or 1h30m, from 10s to 8760h`,
	`interval: -1m, configData: {a: b}`, `spec.interval: Invalid value: "-1m": interval is a duration`,
	`interval: 1d, configData: {a: b}`, `spec.interval: Invalid value: "1d": interval is a duration`,
	`sources: [{key: a, url: x.example.com, sha256: ` + strings.Repeat("0A", 32) + `}]`,
	"sha256 has 64 lower-case hexadecimal digits",
	`sources: [{key: a, url: x.example.com, sha256: abc}]`, "sha256 has 64 lower-case hexadecimal digits",
	numberedSources(129), "spec.sources: Too many: 129: must have at most 128 items",
	`container: {image: i}`, "spec.container.name: Required value",
	`container: {name: c}`, "a container needs an image",
	`container: {name: c, image: i}, imagePullSecrets: {}`, "imagePullSecrets needs the name of a Secret",
	`container: {name: c, image: i, restartPolicy: Never}`, "the restartPolicy of a sidecar is Always; leave it out",
	`container: {name: C_d, image: i}`, "the name of a container has at most 63 characters: a-z",
	`configData: {a: b}, volume: {name: v}`, "volume needs container",
	`configData: {a: b}, imagePullSecrets: {name: s}`, "imagePullSecrets needs container",
	`configBinaryData: {a: "no!"}`, `spec.configBinaryData.a in body must be of type byte: "no!"`,
	`configData: {a: b}, target: {name: A_b}`, "the name of a ConfigMap has a-z, 0-9",
	`configData: {a: b}, target: {deletionPolicy: Orphan}`,
	`Unsupported value: "Orphan": supported values: "Delete", "Retain"`,
}

var _ = Describe("The schema of Watchers", Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) { namespace = env.Cluster.Namespace(ctx) })

	// try creates a Watcher as a dry run, with the validation of kubectl apply.
	try := func(ctx context.Context, name, spec string) error {
		return world.ErrorOf(api.Resource(watchv1.Resource()).Namespace(namespace).
			Create(ctx, world.WatcherOf(name, spec), strictDryRun))
	}

	DescribeTable("accepts", func(ctx SpecContext, spec string) {
		Expect(try(ctx, "w", spec)).To(Succeed())
	},
		Entry("static data", `configData: {LEVEL: warn, .a-b_c: ""}`),
		Entry("static binary data", `configBinaryData: {logo.png: iVBORw0KGgo=}`),
		Entry("a source", `sources: [{key: a, url: data.example.com}]`),
		Entry("a URL with all its parts", `sources: [{key: a, url: "HTTPS://data.example.com:8443/x://y?c=d=e@f"}]`),
		Entry("a digest", `sources: [{key: a, url: x.example.com, sha256: `+strings.Repeat("0a", 32)+`}]`),
		Entry("the maximum number of sources", numberedSources(128)),
		Entry("the longest key", `configData: {`+strings.Repeat("k", 253)+`: x}`),
		Entry("the longest URL", `sources: [{key: a, url: "https://x.example.com/`+strings.Repeat("y", 2048-22)+`"}]`),
		Entry("intervals", `interval: 1h30m0.5s, configData: {a: b}`),
		Entry("only a sidecar", `container: {name: c, image: i}`),
		Entry("every field of a sidecar",
			`container: {name: c, image: i, restartPolicy: Always, ports: [{containerPort: 1}]}, volume: {name: v, emptyDir: `+
				`{}}, imagePullSecrets: {name: s}`),
		Entry("fields of a later Kubernetes",
			`container: {name: c, image: i, fromTheFuture: {a: b}}, volume: {name: v, fromTheFuture: {a: b}}`),
	)

	It("rejects each invalid spec with one sentence, which kubectl apply prints", func(ctx SpecContext) {
		var bad []named
		for pair := range slices.Chunk(refused, 2) {
			bad = append(bad, named{fmt.Sprintf("bad-%d", len(bad)), pair[0]})
		}
		printed, err := kubectlIn(namespace).apply(ctx, bad...)
		Expect(err).To(HaveOccurred())
		lines := strings.Split(strings.TrimSpace(printed), "\n")
		older := !kubetest.HasMutatingPolicies(GinkgoTB(), env.Cluster.Config) // prints types instead of values
		for i, w := range bad {
			sentence := refused[2*i+1]
			if older {
				sentence = sentence[strings.LastIndex(sentence, ": ")+2:]
			}
			Expect(lines).To(ContainElement(And(ContainSubstring(`"`+w.name+`" is invalid: `),
				ContainSubstring(sentence))), w.spec)
		}
	})

	It("rejects unknown fields", func(ctx SpecContext) {
		Expect(try(ctx, "w", `configData: {a: b}, intervall: 5m`)).
			To(MatchError(ContainSubstring(`unknown field "spec.intervall"`)))
	})

	It("rejects names that are too long for the derived names", func(ctx SpecContext) {
		Expect(try(ctx, strings.Repeat("n", 247), `configData: {a: b}`)).
			To(MatchError(ContainSubstring("name the ConfigMap in spec.target.name")))
		Expect(try(ctx, strings.Repeat("n", 247), `configData: {a: b}, target: {name: t}`)).To(Succeed())
		Expect(try(ctx, strings.Repeat("n", 64), `container: {name: c}`)).
			To(MatchError(ContainSubstring("the name of a Watcher with a container has at most 63 characters")))
	})

	DescribeTable("accepts updates of target, but no", func(ctx SpecContext, name, before, after string) {
		watchers := api.Resource(watchv1.Resource()).Namespace(namespace)
		suitetest.Must(watchers.Create(ctx,
			world.WatcherOf(name, "configData: {a: b}, target: {"+before+"}"), metav1.CreateOptions{}))
		change := func(target string) error {
			return world.ErrorOf(watchers.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"target":{`+target+`}}}`),
				metav1.PatchOptions{}))
		}
		Expect(change(after)).To(MatchError(ContainSubstring("target.name cannot be changed, added or removed")))
		Expect(change(`"deletionPolicy":"Retain"`)).To(Succeed(), "the policy may be changed")
	},
		Entry("change of target.name", "changed", "name: a", `"name":"b"`),
		Entry("addition of target.name", "added", "", `"name":"b"`),
		Entry("removal of target.name", "removed", "name: a", `"name":null`),
	)
})

// kubectl runs the real kubectl in a namespace.
type kubectl struct{ path, namespace, folder string }

func kubectlIn(namespace string) kubectl {
	GinkgoHelper()
	return kubectl{world.Kubectl(), namespace, GinkgoT().TempDir()}
}

// run returns the output of kubectl.
func (k kubectl) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, k.path, append([]string{
		"--kubeconfig=" + env.Cluster.Kubeconfig, "--namespace=" + k.namespace, "--cache-dir=" + k.folder,
	}, args...)...).CombinedOutput()
	return string(out), err
}

// named is the name of a Watcher and its spec in YAML.
type named struct{ name, spec string }

// apply applies Watchers in one file.
func (k kubectl) apply(ctx context.Context, watchers ...named) (string, error) {
	GinkgoHelper()
	var text strings.Builder
	for _, w := range watchers {
		fmt.Fprintf(&text, "---\napiVersion: watch.x-kv8s.io/v1alpha1\nkind: Watcher\nmetadata: {name: %s}\nspec: {%s}\n",
			w.name, w.spec)
	}
	file := filepath.Join(k.folder, "watchers.yaml")
	Expect(os.WriteFile(file, []byte(text.String()), 0o600)).To(Succeed())
	return k.run(ctx, "apply", "-f", file)
}

var _ = Describe("kubectl", func() {
	It("applies a valid Watcher, waits for its condition, and lists it by its short name", func(ctx SpecContext) {
		h := open(ctx)
		k := kubectlIn(h.Namespace)
		page := h.Origin.Page("/errors").Says("errors")
		release := page.Hold()
		Expect(k.apply(ctx, named{"errors", `configData: {a: b}, sources: [{key: c, url: "` + page.URL() + `"}]`})).
			To(Equal("watcher.watch.x-kv8s.io/errors created\n"))
		Eventually(ctx, k.run).WithArguments("get", "wat", "errors", "--no-headers").WithPolling(8 * polling).
			Should(MatchRegexp(`^errors +Unknown +Unknown +0/1 +errors-config `))
		release()
		Expect(k.run(ctx, "wait", "--for=condition=Ready", "watcher/errors", "--timeout=25s")).
			To(Equal("watcher.watch.x-kv8s.io/errors condition met\n"))
		Expect(k.run(ctx, "get", "watchers", "-o", "wide")).To(MatchRegexp(
			`^NAME +READY +FRESH +FETCHED +CONFIGMAP +AGE +REASON +CHANGED +PODS *\nerrors +True +True +1/1 +errors-config ` +
				`+\S+ +Ready `))
	})
})

var _ = It("The samples of Watchers are accepted", func(ctx SpecContext) {
	namespace := env.Cluster.Namespace(ctx)
	manifests := strings.Split(string(suitetest.Must(os.ReadFile("../../samples/watchers.yaml"))), "\n---\n")
	Expect(manifests).To(And(HaveLen(3), HaveEach(HavePrefix("# "))))
	for _, manifest := range manifests {
		sample := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(manifest), &sample.Object)).To(Succeed())
		Expect(world.ErrorOf(api.Resource(watchv1.Resource()).Namespace(namespace).Create(ctx, sample, strictDryRun))).
			To(Succeed(), manifest)
	}
})

// Flux, Argo CD and others assess a resource only by these rules.
var _ = Describe("Generic tools", func() {
	health := func(ctx context.Context, w *watcher) string {
		GinkgoHelper()
		o := suitetest.Must(w.home.watchers().Get(ctx, w.name, metav1.GetOptions{}))
		return suitetest.Must(status.Compute(o)).Status.String()
	}

	It("see Watchers that are up to date, in progress and failed", func(ctx SpecContext) {
		h := open(ctx)
		page, held, bad := h.Origin.Page("/good").Says("good"), h.Origin.Page("/held").Says("held"), h.Origin.Page("/bad").
			Fails(404)
		release := held.Hold()
		h.Create(ctx, "theirs")
		h.Create(ctx, "fixed", world.Labelled(watchv1.WatcherLabel, "immutable"), world.Immutable())
		source := func(url string) string { return `sources: [{key: a, url: "` + url + `"}]` }
		good := h.applyReady(ctx, "good", source(page.URL()))
		for name, of := range map[string]struct{ spec, kind, condition, health string }{
			"pending":   {source(held.URL()), "Reconciling", "True/Progressing", "InProgress"},
			"failing":   {source(bad.URL()), "Reconciling", "True/FetchFailed", "InProgress"},
			"denied":    {source("http://10.0.0.1"), "Stalled", "True/AddressDenied", "Failed"},
			"exists":    {`configData: {a: b}, target: {name: theirs}`, "Stalled", "True/TargetExists", "Failed"},
			"owned":     {`configData: {a: b}, target: {name: good-config}`, "Stalled", "True/TargetOwned", "Failed"},
			"invalid":   {source("https://"), "Stalled", "True/InvalidSource", "Failed"},
			"immutable": {`configData: {a: b}, target: {name: fixed}`, "Stalled", "True/TargetImmutable", "Failed"},
			"large":     {`configData: {a: "` + strings.Repeat("x", 1100<<10) + `"}`, "Stalled", "True/TooLarge", "Failed"},
			"refused":   {`configData: {a: b}, target: {name: kube-root-ca.crt}`, "Stalled", "True/TargetRefused", "Failed"},
			"suspended": {`suspend: true, ` + source(page.URL()), "Ready", "Unknown/Suspended", "InProgress"},
			"static":    {`configData: {a: b}`, "Ready", "True/Ready", "Current"},
		} {
			w := h.apply(ctx, name, of.spec)
			w.eventually(ctx, of.kind, of.condition)
			Expect(health(ctx, w)).To(Equal(of.health), name)
		}
		Expect(health(ctx, good)).To(Equal("Current"))
		page.Fails(404)
		good.annotate(ctx, "x-kv8s.io/curl-now", "1")
		good.eventually(ctx, "Fresh", "False/BadStatus")
		Expect(health(ctx, good)).To(Equal("Current"), "the last good value stays")
		release()
	})
})

// injected is a pod as the policy creates it. The spec writes its status, because there is no kubelet.
type injected struct {
	home *home
	name string
}

// pod creates a pod whose annotation lists injected sidecars.
func (h *home) pod(ctx context.Context, name, annotation string) injected {
	GinkgoHelper()
	h.Cluster.RunPods(ctx, h.Namespace)
	pod := &corev1.Pod{}
	Expect(yaml.UnmarshalStrict(fmt.Appendf(nil, `{
		metadata: {name: %s, labels: {%s: "true"}, annotations: {%s: %s}}, spec: {
		initContainers: [{name: watch, image: registry.example/watch, restartPolicy: Always}],
		containers: [{name: app, image: registry.example/app}]}}`,
		name, watchv1.InjectedLabel, watchv1.InjectedAnnotation, annotation), pod)).To(Succeed())
	suitetest.Must(h.Cluster.Client.CoreV1().Pods(h.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
	return injected{h, name}
}

// reports writes the status of the sidecar like a kubelet.
func (p injected) reports(ctx context.Context, s corev1.ContainerStatus) {
	GinkgoHelper()
	pods := p.home.Cluster.Client.CoreV1().Pods(p.home.Namespace)
	pod := suitetest.Must(pods.Get(ctx, p.name, metav1.GetOptions{}))
	s.Name, s.Image = "watch", "registry.example/watch"
	pod.Status.Phase, pod.Status.InitContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{s}
	suitetest.Must(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
}

func (p injected) runs(ctx context.Context) {
	GinkgoHelper()
	running := &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	p.reports(ctx, corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: running}})
}

func (p injected) fails(ctx context.Context, reason string) {
	GinkgoHelper()
	waiting := &corev1.ContainerStateWaiting{Reason: reason}
	p.reports(ctx, corev1.ContainerStatus{State: corev1.ContainerState{Waiting: waiting}})
}

func (p injected) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(p.home.Cluster.Client.CoreV1().Pods(p.home.Namespace).
		Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})).To(Succeed())
}

// eventuallyCounts waits for these numbers of injected, current, ready and failing pods.
func (w *watcher) eventuallyCounts(ctx context.Context, counts ...int64) {
	GinkgoHelper()
	Eventually(ctx, func() []int64 {
		p := w.get(ctx).Status.Pods
		if p == nil {
			return nil
		}
		return []int64{p.Injected, p.Current, p.Ready, p.Failing}
	}).Should(Equal(counts), "injected, current, ready and failing of %s", w.name)
}

// logged returns the log lines of keeper about a pod.
func (p injected) logged() []string {
	return p.home.keeper.Log.Matching(fmt.Sprintf(`"pod":"%s/%s"`, p.home.Namespace, p.name))
}

// eventuallyLogged waits until keeper logged exactly these messages about a pod.
func (p injected) eventuallyLogged(ctx context.Context, messages ...string) {
	GinkgoHelper()
	lines := make([]any, len(messages))
	for i, m := range messages {
		lines[i] = ContainSubstring(`"message":"` + m + `"`)
	}
	Eventually(ctx, p.logged).Should(HaveExactElements(lines...))
}

const withSidecar = `configData: {a: b}, container: {name: watch, image: registry.example/watch}`

var _ = Describe("The sidecars of a Watcher", func() {
	It("are counted in the status, with one log line for each transition", func(ctx SpecContext) {
		h := openWithSidecars(ctx)
		w := h.applyReady(ctx, "errors", withSidecar)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		pod := h.pod(ctx, "web", "errors=1")
		w.eventuallyCounts(ctx, 1, 1, 0, 0)
		pod.runs(ctx)
		w.eventuallyCounts(ctx, 1, 1, 1, 0)
		h.pod(ctx, "others", "other=1")

		w.apply(ctx, withSidecar+`, suspend: true`)
		w.eventuallyCounts(ctx, 1, 0, 1, 0)
		Eventually(ctx, func() float64 { return h.keeper.Metric(ctx, "curlmethat_keeper_sidecars_outdated") }).
			Should(Equal(1.0))
		pod.delete(ctx)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		pod.eventuallyLogged(ctx, "pod injected", "sidecar ready", "pod gone")
		Expect(pod.logged()).To(HaveEach(And(ContainSubstring(`"watcher":"`+h.Namespace+`/errors"`),
			ContainSubstring(`"generation":1`))))
	})

	It("that fail are reported by one Event, and their recovery by another", func(ctx SpecContext) {
		h := openWithSidecars(ctx)
		w := h.apply(ctx, "errors", withSidecar)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		first, second := h.pod(ctx, "first", "errors=1"), h.pod(ctx, "second", "errors=1")
		first.fails(ctx, "CreateContainerConfigError")
		w.eventuallyCounts(ctx, 2, 2, 0, 1)
		second.fails(ctx, "ErrImagePull")
		w.eventuallyCounts(ctx, 2, 2, 0, 2)
		first.fails(ctx, "ImagePullBackOff")
		first.runs(ctx)
		w.eventuallyCounts(ctx, 2, 2, 1, 1)
		Expect(w.events(ctx, watchv1.ReasonSidecarRecovered)).To(BeEmpty())
		second.runs(ctx)
		w.eventuallyCounts(ctx, 2, 2, 2, 0)
		first.eventuallyLogged(ctx, "pod injected", "sidecar failing", "sidecar ready")
		second.eventuallyLogged(ctx, "pod injected", "sidecar failing", "sidecar ready")
		Expect(first.logged()[1]).To(ContainSubstring(`"reason":"CreateContainerConfigError"`))
		Expect(w.events(ctx, watchv1.ReasonSidecarFailing)).To(ConsistOf(And(
			HaveField("Type", "Warning"), HaveField("Note", "the sidecar of pod first fails: CreateContainerConfigError"))))
		Expect(w.events(ctx, watchv1.ReasonSidecarRecovered)).
			To(ConsistOf(And(HaveField("Type", "Normal"), HaveField("Note", "no sidecar fails any more"))))
		Eventually(ctx, func() float64 { return h.keeper.Metric(ctx, "curlmethat_keeper_sidecars", `state="ready"`) }).
			Should(Equal(2.0))

		second.fails(ctx, "CreateContainerConfigError")
		w.eventuallyHasEvents(ctx, watchv1.ReasonSidecarFailing, 2)
	})

	It("cost at most one status write per second, however many there are", func(ctx SpecContext) {
		h := openWithSidecars(ctx)
		w := h.applyReady(ctx, "errors", withSidecar)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		before, began := h.writes(ctx)["status"], time.Now()
		for i := range 40 {
			h.pod(ctx, fmt.Sprintf("web-%d", i), "errors=1").runs(ctx)
		}
		w.eventuallyCounts(ctx, 40, 40, 40, 0)
		Expect(h.writes(ctx)["status"] - before).To(BeNumerically("<=", 2+time.Since(began).Seconds()))
	})
})

// letWatchNamespace lets keeper watch its namespace, like the chart.
func letWatchNamespace(ctx context.Context, namespace string) {
	GinkgoHelper()
	rights := suitetest.Must(controlplane.Decode([]byte(strings.ReplaceAll(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NAMESPACE},
  rules: [{apiGroups: [""], resources: [namespaces], resourceNames: [NAMESPACE], verbs: [list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NAMESPACE},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE},
  subjects: [{kind: ServiceAccount, name: curl-me-that-keeper, namespace: NAMESPACE}]}
`, "NAMESPACE", namespace))))
	applier := suitetest.Must(controlplane.NewApplier(env.Cluster.Config, manifest.Manager))
	Expect(applier.Apply(ctx, "", rights...)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(manifest.Delete(ctx, applier, "", rights)).To(Succeed()) })
}

var _ = Describe("The condition Injectable", func() {
	const sidecar = `container: {name: watch, image: i, securityContext: {allowPrivilegeEscalation: false, ` +
		`capabilities: {drop: [ALL]}}}`

	It("names the obstacle, and follows changes of the namespace and the spec", func(ctx SpecContext) {
		h := openWithSidecars(ctx)
		w := h.apply(ctx, "errors", sidecar)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/NamespaceNotEnabled")
		w.eventuallyReady(ctx)
		h.Cluster.Label(ctx, h.Namespace, watchv1.InjectLabel, watchv1.InjectValue)
		w.eventually(ctx, watchv1.ConditionInjectable, "True/Injectable")
		Expect(w.message(ctx, watchv1.ConditionInjectable)).
			To(Equal("pods with the annotation x-kv8s.io/inject: errors get container watch when they are created"))
		h.Cluster.Label(ctx, h.Namespace, "pod-security.kubernetes.io/enforce", "restricted")
		w.apply(ctx, `container: {name: watch, image: i, securityContext: {privileged: true}}`)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/PodSecurity")
		Expect(w.message(ctx, watchv1.ConditionInjectable)).
			To(ContainSubstring(`must not set securityContext.privileged=true`))
		h.Cluster.Label(ctx, h.Namespace, "pod-security.kubernetes.io/enforce", "privileged")
		w.eventually(ctx, watchv1.ConditionInjectable, "True/Injectable")
		w.apply(ctx, `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionInjectable, "-")
		w.eventuallyReady(ctx)
	})
})
