package watchers_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

const (
	// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are
	// redelivered.
	shortAckWait = 3 * time.Second
	// login is the sign-in page of a proxy, with status 200.
	login = "<html>Sign in</html>"
	// certificate is the start of a bundle.
	certificate = "-----BEGIN CERTIFICATE-----"
)

// answers are bodies by key, and the numbers of the rules that they break (0 for a selection), as in
// deploy/docs/rules.md.
type answers struct {
	bodies map[string]string
	rules  map[string]uint32
}

var (
	loginPages = answers{
		map[string]string{"rules.json": login, "ca.pem": login, "limits.json": login},
		map[string]uint32{"rules.json": 1, "ca.pem": 1, "limits.json": 0},
	}
	halfFiles = answers{
		map[string]string{"rules.json": `{"rules":[1],"version":2}`, "ca.pem": certificate, "limits.json": `{"data":{}}`},
		map[string]uint32{"rules.json": 2, "ca.pem": 2, "limits.json": 0},
	}
)

// goodBodies returns bodies that meet the rules, and the resulting data.
func goodBodies(n int) (bodies, data map[string]string) {
	bodies = map[string]string{
		"rules.json":  fmt.Sprintf(`{"rules":[%d],"version":3}`, n),
		"ca.pem":      fmt.Sprintf("%s\n%d %s", certificate, n, strings.Repeat("MIID", 10)),
		"limits.json": fmt.Sprintf(`{"data":{"limits":[%d]}}`, n),
	}
	data = map[string]string{
		"rules.json": bodies["rules.json"], "ca.pem": bodies["ca.pem"], "limits.json": fmt.Sprintf("[%d]", n),
	}
	return bodies, data
}

// ruled is a ConfigMap with the rules and the selection of deploy/docs/rules.md.
type ruled struct {
	*home
	*world.ConfigMap
	pages map[string]*origin.Page
	// fetch requests a fetch of all keys.
	fetch func(ctx context.Context, now int)
}

// watched creates a Watcher that creates the ConfigMap.
func watched(ctx context.Context, r *ruled) {
	source := func(key, rest string) string {
		return `{key: ` + key + `, url: "` + r.pages[key].URL() + `", ` + rest + `}, `
	}
	w := r.apply(ctx, "ruled", `sources: [`+
		source("rules.json", `expect: [{rule: size(json.rules) > 0}, {rule: json.version >= 3}]`)+
		source("ca.pem", `expect: [{rule: 'body.startsWith("`+certificate+`")'}, {rule: size(body) * 2 > heldSize}]`)+
		source("limits.json", `select: json.data.limits`)+`]`)
	r.ConfigMap = r.Named("ruled-config")
	r.fetch = func(ctx context.Context, now int) {
		w.annotate(ctx, "x-kv8s.io/curl-now", strconv.Itoa(now))
	}
}

func (r *ruled) says(bodies map[string]string) {
	for key, page := range r.pages {
		page.Says(bodies[key])
	}
}

func (r *ruled) eventuallyHas(ctx context.Context, data map[string]string) {
	GinkgoHelper()
	for key, value := range data {
		r.EventuallyHasDataWithin(ctx, time.Minute, key, value)
		r.EventuallyReports(ctx, key, "")
	}
}

// killDuring kills a service during the GETs of all keys.
func (r *ruled) killDuring(ctx context.Context, now int, s *world.Service) {
	GinkgoHelper()
	var releases []func()
	for _, page := range r.pages {
		releases = append(releases, page.Hold())
	}
	r.fetch(ctx, now)
	for _, page := range r.pages {
		Eventually(ctx, page.Waiting).Should(Equal(1))
	}
	Expect(s.Kill()).To(Succeed())
	for _, release := range releases {
		release()
	}
	s.Restart(ctx)
}

// eventuallyRejects waits until every key reports the broken rule, and expects that all keep their values.
func (r *ruled) eventuallyRejects(ctx context.Context, bad answers, data map[string]string) {
	GinkgoHelper()
	for key, number := range bad.rules {
		Eventually(ctx, func() uint32 { return r.Status(ctx, key).Why().Rule }).WithTimeout(time.Minute).
			Should(Equal(number), key)
		r.EventuallyReports(ctx, key, "ContentRejected")
	}
	Expect(r.Get(ctx).Data).To(Equal(data))
}

// replay replays the failures.
func (r *ruled) replay(ctx context.Context) {
	GinkgoHelper()
	r.EventuallyQuiet(ctx)
	out, _ := exec.CommandContext(ctx, r.Program("curlctl"), "replay", "--nats-url", r.Broker(), "--host", "localhost",
		"--wait", "--timeout", "1m").CombinedOutput()
	Expect(string(out)).To(ContainSubstring("Outcome: 3 "))
}

var _ = Describe("Rules and a selection of a Watcher", func() {
	It("keep the last good values through kills, replays and a wiped NATS", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		r := &ruled{home: &home{World: w, keeper: w.Launch(ctx, world.Keeper)}, pages: map[string]*origin.Page{}}
		r.keeper.EventuallyReady(ctx)
		bodies, data := goodBodies(1)
		for key := range bodies {
			r.pages[key] = w.Origin.Page("/" + key)
		}
		r.says(bodies)
		watched(ctx, r)
		r.eventuallyHas(ctx, data)

		for i, s := range []*world.Service{w.Watcher(), w.Fetcher(), w.Writer(), r.keeper} {
			bad := []answers{loginPages, halfFiles}[i%2]
			r.says(bad.bodies)
			r.killDuring(ctx, i+1, s)
			r.eventuallyRejects(ctx, bad, data)
		}
		r.replay(ctx)
		r.eventuallyRejects(ctx, halfFiles, data)
		bodies, data = goodBodies(2)
		r.says(bodies)
		r.replay(ctx)
		r.eventuallyHas(ctx, data)

		r.EventuallyQuiet(ctx)
		before := w.Origin.Hits()
		Expect(w.NATS.Wipe()).To(Succeed())
		Expect(w.NATS.Start()).To(Succeed())
		Eventually(ctx, w.JetStream.AccountInfo).ShouldNot(BeNil())
		w.MakeStreams(ctx)
		w.Create(ctx, "new", world.Asking("mydata="+w.Origin.Page("/new").Says("new").URL())).
			EventuallyHasDataWithin(ctx, time.Minute, "mydata", "new")
		r.EventuallyQuiet(ctx)
		Expect(w.Origin.Hits()).To(Equal(before+1), "only the new key is fetched")
		r.says(loginPages.bodies)
		r.fetch(ctx, 9)
		r.eventuallyRejects(ctx, loginPages, data)
	}, SpecTimeout(4*time.Minute))
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

	It("are counted again after a restart of keeper without a write, a log line or an Event", func(ctx SpecContext) {
		h := openWithSidecars(ctx)
		w := h.applyReady(ctx, "errors", withSidecar)
		pod := h.pod(ctx, "web", "errors=1")
		pod.fails(ctx, "CreateContainerConfigError")
		w.eventuallyCounts(ctx, 1, 1, 0, 1)
		version := w.get(ctx).ResourceVersion
		Expect(h.keeper.Kill()).To(Succeed())
		h.keeper.Restart(ctx)
		Eventually(h.keeper.Log.Matching).WithArguments(`"listed the pods with sidecars"`).
			Should(HaveLen(2), "one for each start")
		lines := len(pod.logged())
		w.annotate(ctx, "look", "again")
		h.applyReady(ctx, "next", `configData: {a: b}`)
		Expect(w.get(ctx).Status.Pods.Failing).To(Equal(int64(1)))
		Expect(w.get(ctx).ResourceVersion).NotTo(Equal(version), "changed by the spec")
		Expect(h.writes(ctx)["status"]).To(BeNumerically("<=", 2), "writes for the other Watcher")
		Expect(pod.logged()).To(HaveLen(lines))
		Expect(w.events(ctx, watchv1.ReasonSidecarFailing)).To(HaveLen(1))
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

	It("is False if the operator has not enabled sidecars, even in a labelled namespace", func(ctx SpecContext) {
		h := open(ctx)
		h.Cluster.Label(ctx, h.Namespace, watchv1.InjectLabel, watchv1.InjectValue)
		w := h.apply(ctx, "errors", sidecar)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/PoliciesMissing")
		w.eventuallyReady(ctx)
	})
})
