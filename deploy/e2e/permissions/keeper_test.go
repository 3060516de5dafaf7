package permissions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = Describe("The service account of keeper", Ordered, func() {
	var (
		namespace, closed string
		account           *world.Account
	)
	// mayDelete is a permission that keeper does not have, so that only the policy can deny it.
	mayDelete := rule("", "configmaps", "delete")

	BeforeAll(func(ctx SpecContext) {
		namespace, closed = env.Cluster.Namespace(ctx), env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, namespace, []string{"admission-keeper.yaml"}, "keeper.enabled=true",
			"protectedNamespaces={kube-system,"+closed+"}"))
		account = env.Cluster.Account(ctx, namespace, "curl-me-that-keeper", append(world.KeeperRules(), mayDelete)...)
		account.In(ctx, closed, world.KeeperRules()...)
		Eventually(ctx, func() error {
			return try(ctx, account.Client.CoreV1().ConfigMaps(namespace), nil)
		}).ShouldNot(Succeed(), "the policy is in force")
	})

	// theirs returns the ConfigMap of a Watcher with static and fetched keys.
	theirs := func(label string, traits ...trait) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "cm-", Annotations: map[string]string{
				annotation.DefaultKey: "fetched=x.example.com\nlined=y.example.com\u00a0spaced=z.example.com",
				annotation.StatusKey:  reporting("fetched"),
			}},
			Data:       map[string]string{"static": "a", "fetched": "b", "lined": "c"},
			BinaryData: map[string][]byte{"staticbin": {0xff}, "spaced": {0xff}},
		}
		if label != "" {
			cm.Labels = map[string]string{watchv1.WatcherLabel: label}
		}
		for _, t := range traits {
			t(cm)
		}
		return cm
	}

	DescribeTable("is allowed to change static keys and the annotation:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, account, create(ctx, namespace, theirs("errors")), body)).To(Succeed())
	},
		Entry("change a static key", `{"data":{"static":"new"}}`),
		Entry("remove a static key", `{"data":{"static":null}}`),
		Entry("change a static binary key", `{"binaryData":{"staticbin":"/g=="}}`),
		Entry("remove a static binary key", `{"binaryData":{"staticbin":null}}`),
		Entry("request another URL", annotations(annotation.DefaultKey, "other=y.example.com")),
		Entry("make a static key a fetched key",
			both(annotations(annotation.DefaultKey, "fetched=x.example.com static=y.example.com"), `{"data":{"static":null}}`)),
		Entry("make a fetched key a static key",
			both(annotations(annotation.DefaultKey, ""), `{"data":{"fetched":"static now"}}`)),
		Entry("add its Watcher as the owner", controlled("watch.x-kv8s.io/v1alpha1", "Watcher", "errors")),
	)

	DescribeTable("is denied changes that keeper does not need:", func(ctx SpecContext, body, text string) {
		Expect(patch(ctx, account, create(ctx, namespace, theirs("errors")), body)).To(beForbidden(text))
	},
		Entry("hand a ConfigMap to another Watcher", labelled(`"other"`), "may not change that label"),
		Entry("remove the label", labelled("null"), "may not change that label"),
		Entry("set a key that the annotation names", `{"data":{"fetched":"new"}}`,
			"may not set an annotated key, such as fetched"),
		Entry("remove a key that the annotation names", `{"data":{"fetched":null}}`,
			"may not remove an annotated key, such as fetched"),
		Entry("set such a key after a newline", `{"data":{"lined":"new"}}`, "such as lined"),
		Entry("remove such a key after a newline", `{"data":{"lined":null}}`, "remove an annotated key, such as lined"),
		Entry("set such a binary key after a no-break space", `{"binaryData":{"spaced":"/g=="}}`, "such as spaced"),
		Entry("remove such a binary key after a no-break space", `{"binaryData":{"spaced":null}}`,
			"remove an annotated key, such as spaced"),
		Entry("make a key that the annotation names binary", `{"data":{"fetched":null},"binaryData":{"fetched":"/w=="}}`,
			"may not set an annotated key, such as fetched"),
		Entry("hide a key from the policy with a newline",
			both(annotations(annotation.DefaultKey, "a=x.example.com\nstatic=y.example.com"), `{"data":{"static":"new"}}`),
			"such as static"),
		Entry("hide a key from the policy with a no-break space",
			both(annotations(annotation.DefaultKey, "a=x.example.com\u00a0static=y.example.com"), `{"data":{"static":"new"}}`),
			"such as static"),
		Entry("change the status", annotations(annotation.StatusKey, ""), "may not change x-kv8s.io/curl-status"),
		Entry("make a ConfigMap immutable", `{"immutable":true}`, "may not change immutable or finalizers"),
		Entry("keep a ConfigMap from being deleted", `{"metadata":{"finalizers":["example.com/held"]}}`,
			"may not change immutable or finalizers"),
		Entry("let another kind control a ConfigMap", controlled("apps/v1", "Deployment", "errors"),
			"any other object than its Watcher the controller"),
		Entry("let another Watcher control a ConfigMap", controlled("watch.x-kv8s.io/v1alpha1", "Watcher", "other"),
			"any other object than its Watcher the controller"),
	)

	DescribeTable("is denied changes to a ConfigMap without the label:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, account, create(ctx, namespace, theirs("")), body)).
			To(beForbidden("may not change ConfigMaps without the label"))
	}, Entry("a static key", `{"data":{"static":"new"}}`), Entry("the label", labelled(`"errors"`)))

	It("has no permission to get or delete ConfigMaps, and the policy denies deletes", func(ctx SpecContext) {
		created := create(ctx, namespace, theirs("errors"))
		configMaps := account.Client.CoreV1().ConfigMaps(namespace)
		Expect(configMaps.Delete(ctx, created.Name, metav1.DeleteOptions{})).
			To(MatchError(ContainSubstring("keeper may not delete ConfigMaps")))
		Expect(world.ErrorOf(configMaps.Get(ctx, created.Name, metav1.GetOptions{}))).
			To(MatchError(apierrors.IsForbidden, "is forbidden"))
		for _, rule := range world.KeeperRules() {
			Expect(rule.Verbs).NotTo(ContainElements("delete"))
			Expect(rule.Resources).NotTo(ContainElement("secrets"))
		}
	})

	It("may create the ConfigMap of a Watcher and no other", func(ctx SpecContext) {
		configMaps := account.Client.CoreV1().ConfigMaps(namespace)
		made := theirs("errors")
		delete(made.Annotations, annotation.StatusKey)
		made.Data, made.BinaryData = map[string]string{"static": "a"}, map[string][]byte{"staticbin": {0xff}}
		suitetest.Must(configMaps.Create(ctx, made, metav1.CreateOptions{}))
		for _, bad := range []struct {
			text   string
			change trait
		}{
			{"keeper must label each ConfigMap with its Watcher", func(cm *corev1.ConfigMap) { cm.Labels = nil }},
			{"may not set an annotated key, such as lined", func(cm *corev1.ConfigMap) { cm.Data["lined"] = "c" }},
			{"may not change x-kv8s.io/curl-status", with(annotation.StatusKey, reporting("fetched"))},
			{"may not change protected ConfigMaps", named("", "kube-root-ca.crt")},
			{"may not change immutable or finalizers", func(cm *corev1.ConfigMap) { cm.Immutable = new(true) }},
			{"any other object than its Watcher the controller", controlledBy("apps/v1", "Deployment", "errors")},
			{"any other object than its Watcher the controller", controlledBy("watch.x-kv8s.io/v1alpha1", "Watcher", "other")},
		} {
			cm := made.DeepCopy()
			bad.change(cm)
			Expect(world.ErrorOf(configMaps.Create(ctx, cm, metav1.CreateOptions{}))).To(beForbidden(bad.text))
		}
	})

	It("is denied changes in a protected namespace and of kube-root-ca.crt", func(ctx SpecContext) {
		const text = "keeper may not change protected ConfigMaps"
		Expect(world.ErrorOf(account.Client.CoreV1().ConfigMaps(closed).
			Create(ctx, theirs("errors"), metav1.CreateOptions{}))).To(MatchError(ContainSubstring(text)))
		for _, cm := range []*corev1.ConfigMap{
			create(ctx, closed, theirs("errors")),
			create(ctx, namespace, theirs("errors", named("", "kube-root-ca.crt"))),
		} {
			Expect(patch(ctx, account, cm, `{"data":{"static":"new"}}`)).To(MatchError(ContainSubstring(text)))
		}
	})

	It("never exceeds the API server's cost limits for its policy", func(ctx SpecContext) {
		cm := theirs("errors")
		var pairs []string
		for i := range annotation.MaxPairs {
			pairs = append(pairs, fmt.Sprintf("fetched-%03d=https://a.example.com/%s", i, strings.Repeat("x", 220)))
		}
		cm.Annotations[annotation.DefaultKey] = strings.Join(pairs, "\n")
		long := strings.Repeat("k", 240)
		for i := range 256 { // the maximum of a Watcher
			cm.Data[fmt.Sprintf("%s-%d", long, i)] = strings.Repeat("v", 2<<10)
			cm.BinaryData[fmt.Sprintf("%s-bin-%d", long, i)] = []byte{0xff}
		}
		created := create(ctx, namespace, cm)
		for i := range 256 {
			cm.Data[fmt.Sprintf("%s-%d", long, i)] = "new"
			cm.BinaryData[fmt.Sprintf("%s-bin-%d", long, i)] = []byte{0xfe}
		}
		all := suitetest.Must(json.Marshal(map[string]any{"data": cm.Data, "binaryData": cm.BinaryData}))
		Expect(patch(ctx, account, created, string(all))).To(Succeed())
		Expect(patch(ctx, account, created, `{"data":{"fetched-127":"new"}}`)).
			To(MatchError(ContainSubstring("such as fetched-127")))
	})
})

// controlledBy sets a controller.
func controlledBy(apiVersion, kind, name string) trait {
	owner := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "a", Controller: new(true)}
	return func(cm *corev1.ConfigMap) { cm.OwnerReferences = []metav1.OwnerReference{owner} }
}

// controlled returns a patch that sets a controller.
func controlled(apiVersion, kind, name string) string {
	owner := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":"a","controller":true}`, apiVersion, kind, name)
	return `{"metadata":{"ownerReferences":[` + owner + `]}}`
}

// labelled returns a patch that hands a ConfigMap to a Watcher, given in JSON, or to none (null).
func labelled(watcher string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, watchv1.WatcherLabel, watcher)
}

var _ = Describe("The service account of keeper --credentials", Ordered, func() {
	var (
		namespace string
		account   *world.Account
	)
	patch := func(ctx SpecContext, name, body string) error {
		return world.ErrorOf(account.Client.CoreV1().Secrets(namespace).
			Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}))
	}
	BeforeAll(func(ctx SpecContext) {
		namespace = env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, namespace, []string{"credentials.yaml"}, "credentials.namespaces."+namespace+"[0]=rules"))
		// This is more than the chart grants, so that only the policy can deny it.
		account = env.Cluster.Account(ctx, namespace, "curl-me-that-credentials",
			rule("", "secrets", "create", "get", "update", "patch", "delete"))
		for _, name := range []string{"curl-me-that-credentials", "other"} {
			Expect(world.ErrorOf(env.Cluster.Client.CoreV1().Secrets(namespace).Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))).
				To(Or(Succeed(), MatchError(apierrors.IsAlreadyExists, "already exists")))
		}
		Eventually(ctx, func() error { return patch(ctx, "other", `{"data":{"headers.json":"W10="}}`) }).
			Should(MatchError(ContainSubstring("credentials may not change any Secret but curl-me-that-credentials")),
				"the policy is in force")
	})

	It("may change the compiled file", func(ctx SpecContext) {
		Expect(patch(ctx, "curl-me-that-credentials", `{"metadata":{"annotations":{"x-kv8s.io/curl-ignored":"a"}},`+
			`"data":{"headers.json":"W10="}}`)).To(Succeed())
	})

	DescribeTable("may change nothing else in its Secret:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, "curl-me-that-credentials", body)).
			To(MatchError(ContainSubstring("credentials may only change the key headers.json")))
	},
		Entry("another key", `{"data":{"other":"W10="}}`),
		Entry("a label", `{"metadata":{"labels":{"a":"b"}}}`),
		Entry("an annotation", `{"metadata":{"annotations":{"a":"b"}}}`),
		Entry("a finalizer", `{"metadata":{"finalizers":["example.com/a"]}}`),
		Entry("immutable", `{"immutable":true}`),
	)

	It("may not create or delete Secrets", func(ctx SpecContext) {
		secrets := account.Client.CoreV1().Secrets(namespace)
		created := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
		Expect(world.ErrorOf(secrets.Create(ctx, created, metav1.CreateOptions{}))).
			To(MatchError(apierrors.IsForbidden, "is forbidden"))
		Expect(secrets.Delete(ctx, "curl-me-that-credentials", metav1.DeleteOptions{})).
			To(MatchError(apierrors.IsForbidden, "is forbidden"))
	})
})

// tryWatcher creates a Watcher as a dry run.
func tryWatcher(ctx context.Context, in dynamic.ResourceInterface, spec string) error {
	return world.ErrorOf(in.Create(ctx, world.WatcherOf("new", spec), dryRun))
}

// A sidecar runs with the permissions of pods, so setting a sidecar amounts to creating a pod.
var _ = Describe("A user", Ordered, func() {
	var (
		in     *injected
		theirs dynamic.ResourceInterface
	)
	BeforeAll(func(ctx SpecContext) {
		api := env.Cluster.ServeWatchers(ctx)
		in = enabled(ctx, api)
		install(ctx, within(in.namespace,
			render(ctx, in.namespace, []string{"admission-watchers.yaml"}, "keeper.enabled=true")))
		theirs = in.as(ctx, "editor", rule("watch.x-kv8s.io", "watchers", "create", "patch", "get", "delete"))
		in.watcher(ctx, "errors", logs)
		Eventually(ctx, func() error { return tryWatcher(ctx, theirs, simple) }).
			Should(HaveOccurred(), "the policy is in force")
	})
	patch := func(ctx context.Context, body string) error {
		return world.ErrorOf(theirs.Patch(ctx, "errors", types.MergePatchType, []byte(body),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))
	}

	DescribeTable("who cannot create pods may edit parts that pods do not get:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, body)).To(Succeed())
	},
		Entry("change static data", `{"spec":{"configData":{"LEVEL":"info"}}}`),
		Entry("remove static data", `{"spec":{"configData":{"LEVEL":null}}}`),
		Entry("add static data that is not a variable", `{"spec":{"configData":{"app.yaml":"a: b"}}}`),
		Entry("change sources", `{"spec":{"sources":[{"key":"a","url":"a.example.com"}]}}`),
		Entry("write the existing values", `{"spec":{"container":{"image":"registry.example/watch:1"}}}`),
		Entry("annotate", `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`),
	)

	DescribeTable("who cannot create pods may not edit parts that pods get:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, body)).To(beForbidden("denied request: container, volume, imagePullSecrets and new variables of " +
			"configData become part of pods, and system:serviceaccount:" + in.namespace + ":editor may not create pods in " +
			"namespace " + in.namespace + "; leave them as they are, or ask for that right"))
	},
		Entry("add a variable", `{"spec":{"configData":{"LD_PRELOAD":"/rules/x.so"}}}`),
		Entry("add a variable by renaming another", `{"spec":{"configData":{"LEVEL":null,"level":"info"}}}`),
		Entry("change the container", `{"spec":{"container":{"args":["--steal"]}}}`),
		Entry("change a field that this Kubernetes does not know", `{"spec":{"container":{"fromTheFuture":1}}}`),
		Entry("remove the container", `{"spec":{"container":null,"volume":null,"imagePullSecrets":null}}`),
		Entry("change the volume", `{"spec":{"volume":{"emptyDir":null,"secret":{"secretName":"theirs"}}}}`),
		Entry("remove the volume", `{"spec":{"volume":null}}`),
		Entry("change the pull secret", `{"spec":{"imagePullSecrets":{"name":"theirs"}}}`),
		Entry("remove the pull secret", `{"spec":{"imagePullSecrets":null}}`),
	)

	It("who cannot create pods may create a Watcher without a sidecar, but not with one", func(ctx SpecContext) {
		Expect(tryWatcher(ctx, theirs, `configData: {a: b}`)).To(Succeed())
		Expect(tryWatcher(ctx, theirs, simple)).
			To(MatchError(ContainSubstring("may not create pods in namespace " + in.namespace)))
	})

	It("needs permission to create pods to set a sidecar", func(ctx SpecContext) {
		theirs := in.as(ctx, "deployer", sidecars, pods)
		for _, spec := range []string{
			simple, logs,
			having(`livenessProbe: {httpGet: {port: 80}}, ports: [{containerPort: 80, hostPort: 0}], securityContext: ` +
				`{capabilities: {add: [CHOWN], drop: [ALL]}, privileged: false, procMount: Default, ` +
				`seccompProfile: {type: RuntimeDefault}}`),
		} {
			Eventually(ctx, func() error { return tryWatcher(ctx, theirs, spec) }).Should(Succeed())
		}
	})

	// beyondBaseline has sidecars that Pod Security rejects at the baseline level.
	beyondBaseline := map[string]string{
		"a privileged container":    having(`securityContext: {privileged: true}`),
		"a capability":              having(`securityContext: {capabilities: {add: [CHOWN, SYS_ADMIN]}}`),
		"all of /proc":              having(`securityContext: {procMount: Unmasked}`),
		"no seccomp":                having(`securityContext: {seccompProfile: {type: Unconfined}}`),
		"no AppArmor":               having(`securityContext: {appArmorProfile: {type: Unconfined}}`),
		"another SELinux type":      having(`securityContext: {seLinuxOptions: {type: spc_t}}`),
		"a process of the host":     having(`securityContext: {windowsOptions: {hostProcess: true}}`),
		"a port of the host":        having(`ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]`),
		"a probe of another host":   having(`livenessProbe: {tcpSocket: {host: 10.0.0.1, port: 1}}`),
		"a request to another host": having(`lifecycle: {preStop: {httpGet: {host: 169.254.169.254, port: 80}}}`),
		"a folder of the host":      having(``) + `, volume: {name: x, hostPath: {path: /}}`,
	}

	It("needs more permissions for a sidecar beyond the baseline standard", func(ctx SpecContext) {
		evaluator := suitetest.Must(policy.NewEvaluator(policy.DefaultChecks(), nil))
		theirs := in.as(ctx, "maker", sidecars, pods)
		Eventually(ctx, func() error { return tryWatcher(ctx, theirs, simple) }).Should(Succeed())
		for what, spec := range beyondBaseline {
			By(what)
			pod := podOf(spec)
			baseline := api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}
			verdict := policy.AggregateCheckResults(evaluator.EvaluatePod(baseline, &pod.ObjectMeta, &pod.Spec))
			Expect(verdict.Allowed).To(BeFalse(), what)
			Expect(tryWatcher(ctx, theirs, spec)).To(MatchError(And(
				ContainSubstring("container or volume leaves the Pod Security Standard baseline"),
				HaveSuffix("may not use watchers/privileged in namespace "+in.namespace+"; remove that, or ask for that right"))))
		}
	})

	It("may set any sidecar with permission to use watchers/privileged", func(ctx SpecContext) {
		theirs := in.as(ctx, "operator", sidecars, pods, rule("watch.x-kv8s.io", "watchers/privileged", "use"))
		for what, spec := range beyondBaseline {
			Eventually(ctx, func() error { return tryWatcher(ctx, theirs, spec) }).Should(Succeed(), what)
		}
	})
})

// having returns the spec of a Watcher whose container has these fields.
func having(fields string) string { return "container: {name: x, image: x, " + fields + "}" }

// sidecars and pods are the permissions to set sidecars.
var (
	sidecars = rule("watch.x-kv8s.io", "watchers", "create")
	pods     = rule("", "pods", "create")
)

// as returns a client for the namespace's Watchers that uses an account with these permissions.
func (i *injected) as(ctx context.Context, name string, rules ...rbacv1.PolicyRule) dynamic.ResourceInterface {
	GinkgoHelper()
	client := suitetest.Must(dynamic.NewForConfig(env.Cluster.Account(ctx, i.namespace, name, rules...).Config))
	return client.Resource(watchv1.Resource()).Namespace(i.namespace)
}

// podOf returns a pod with the container and the volume of a Watcher.
func podOf(spec string) *corev1.Pod {
	GinkgoHelper()
	var of struct {
		Container corev1.Container `json:"container"`
		Volume    corev1.Volume    `json:"volume"`
	}
	Expect(yaml.Unmarshal([]byte("{"+spec+"}"), &of)).To(Succeed())
	return &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{of.Container}, Volumes: []corev1.Volume{of.Volume},
	}}
}

// injected is a namespace with sidecar injection.
type injected struct {
	namespace string
	api       dynamic.Interface
}

// enabled creates a namespace with labels (name=value) in which pods can be created.
func enabled(ctx context.Context, api dynamic.Interface, labels ...string) *injected {
	GinkgoHelper()
	i := &injected{namespace: env.Cluster.Namespace(ctx), api: api}
	for _, label := range labels {
		name, value, _ := strings.Cut(label, "=")
		env.Cluster.Label(ctx, i.namespace, name, value)
	}
	env.Cluster.RunPods(ctx, i.namespace)
	return i
}

// watcher creates a Watcher.
func (i *injected) watcher(ctx context.Context, name, spec string) {
	GinkgoHelper()
	suitetest.Must(i.api.Resource(watchv1.Resource()).Namespace(i.namespace).
		Create(ctx, world.WatcherOf(name, spec), metav1.CreateOptions{}))
}

// try creates a pod as a dry run.
func (i *injected) try(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return env.Cluster.Client.CoreV1().Pods(i.namespace).Create(ctx, pod, dryRun)
}

// eventuallyRejected waits until a pod is rejected with a text.
func (i *injected) eventuallyRejected(ctx context.Context, pod *corev1.Pod, text string) {
	GinkgoHelper()
	Eventually(ctx, func() error { return world.ErrorOf(i.try(ctx, pod)) }).Should(MatchError(ContainSubstring(text)))
}

// eventually creates a pod as a dry run until it gets a sidecar, because policies see a new Watcher or
// namespace label with a delay.
func (i *injected) eventually(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	var admitted *corev1.Pod
	Eventually(ctx, func() (err error) {
		admitted, err = i.try(ctx, pod)
		if err == nil && admitted.Annotations[watchv1.InjectedAnnotation] == "" {
			return errors.New("the pod has no sidecar")
		}
		return err
	}).Should(Succeed())
	return admitted
}

// eventuallyKnown waits until the policies see a new namespace and a new Watcher, and therefore all earlier
// ones.
func eventuallyKnown(ctx context.Context, api dynamic.Interface) {
	GinkgoHelper()
	now := enabled(ctx, api, "x-kv8s.io/inject=enabled")
	now.watcher(ctx, "newest", simple)
	now.eventually(ctx, naming("newest"))
	now.eventuallyRejected(ctx, naming("nosuch"), `Watcher "nosuch"`)
}

// naming returns a pod whose annotation names Watchers.
func naming(names string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Annotations: map[string]string{watchv1.InjectAnnotation: names}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// inits returns the names of the init containers of a pod.
func inits(pod *corev1.Pod) []string {
	names := []string{}
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	return names
}

const (
	// logs is the Watcher in the design document.
	logs = `configData: {LEVEL: warn, OWN: theirs, not-a-name: x, ALSO: "1"},
		container: {name: watch-errors, image: "registry.example/watch:1", args: [--file=/logs/app.log],
			env: [{name: OWN, value: mine}],
			ports: [{containerPort: 8080}], resources: {limits: {cpu: 1}}, volumeMounts: [{name: logs, mountPath: /logs}]},
		volume: {name: logs, emptyDir: {}}, imagePullSecrets: {name: registry}`
	simple = `container: {name: simple, image: "registry.example/simple:1"}`
)

var _ = Describe("A pod", Ordered, func() {
	var (
		api dynamic.Interface
		in  *injected
	)
	BeforeAll(func(ctx SpecContext) {
		kubetest.NeedMutatingPolicies(GinkgoTB(), env.Cluster.Config)
		api = env.Cluster.ServeWatchers(ctx)
		release := env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, release, []string{"injection.yaml"}, "keeper.enabled=true", "sidecar.enabled=true"))
		in = enabled(ctx, api, "x-kv8s.io/inject=enabled")
		in.watcher(ctx, "errors", logs)
		in.watcher(ctx, "other", simple)
		in.watcher(ctx, "static", `configData: {a: b}, target: {name: elsewhere}`)
		in.eventuallyRejected(ctx, naming("nosuch"), `Watcher "nosuch"`) // the rejecting policy is in force
		in.eventually(ctx, naming("errors, other"))
	})

	It("gets the sidecar of its Watcher after its own init containers, with volumes and secrets", func(ctx SpecContext) {
		pod := suitetest.Must(in.try(ctx, naming("errors", func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": "mine"}
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "registry.example/first:1"}}
		})))
		Expect(inits(pod)).To(Equal([]string{"first", "watch-errors"}))
		sidecar := pod.Spec.InitContainers[1]
		Expect(sidecar.RestartPolicy).To(HaveValue(Equal(corev1.ContainerRestartPolicyAlways)))
		Expect(sidecar.Args).To(Equal([]string{"--file=/logs/app.log"}))
		Expect(sidecar.Ports).To(ConsistOf(HaveField("ContainerPort", int32(8080))))
		Expect(sidecar.Resources.Limits.Cpu().String()).To(Equal("1"))
		reference := func(key string) corev1.EnvVar {
			return corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "errors-config"}, Key: key,
			}}}
		}
		variables := []corev1.EnvVar{{Name: "OWN", Value: "mine"}, reference("ALSO"), reference("LEVEL")}
		Expect(sidecar.Env).To(Equal(variables))
		for range 40 { // the order of variables must not depend on that of a map
			again := suitetest.Must(in.try(ctx, naming("errors")))
			Expect(again.Spec.InitContainers[0].Env).To(Equal(variables))
		}
		Expect(pod.Spec.Volumes).To(ContainElement(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
			"Name": Equal("logs"), "VolumeSource": HaveField("EmptyDir", Not(BeNil())),
		})))
		Expect(pod.Spec.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: "registry"}))
		Expect(pod.Labels).To(Equal(map[string]string{"app": "mine", watchv1.InjectedLabel: "true"}))
		Expect(pod.Annotations).To(HaveKeyWithValue(watchv1.InjectedAnnotation, "errors=1"))
		Expect(pod.Spec.Containers).To(HaveLen(1))
	})

	It("does not get a sidecar twice", func(ctx SpecContext) {
		once := suitetest.Must(in.try(ctx, naming("errors,other")))
		again := once.DeepCopy()
		again.ResourceVersion, again.UID = "", ""
		twice := suitetest.Must(in.try(ctx, again))
		Expect(twice.Spec).To(Equal(once.Spec))
		Expect(twice.Labels).To(Equal(once.Labels))
		Expect(twice.Annotations).To(Equal(once.Annotations))
	})

	It("that names two Watchers gets both sidecars once each", func(ctx SpecContext) {
		pod := suitetest.Must(in.try(ctx, naming(" other ,errors,, errors")))
		Expect(inits(pod)).To(ConsistOf("watch-errors", "simple"))
		Expect(strings.Split(pod.Annotations[watchv1.InjectedAnnotation], ",")).To(ConsistOf("errors=1", "other=1"))
	})

	It("keeps its own volume and pull secret of the same names", func(ctx SpecContext) {
		pod := suitetest.Must(in.try(ctx, naming("errors", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "mine"}},
			}}}
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mine"}, {Name: "registry"}}
		})))
		Expect(pod.Spec.Volumes).To(ContainElement(And(HaveField("Name", "logs"), HaveField("ConfigMap.Name", "mine"))))
		Expect(pod.Spec.Volumes).NotTo(ContainElement(And(HaveField("Name", "logs"), HaveField("EmptyDir", Not(BeNil())))))
		Expect(pod.Spec.ImagePullSecrets).To(HaveLen(2))
	})

	It("that falsely claims to have the sidecar gets it", func(ctx SpecContext) {
		pod := suitetest.Must(in.try(ctx, naming("errors", func(p *corev1.Pod) {
			p.Annotations[watchv1.InjectedAnnotation] = "errors=77,gone=3"
		})))
		Expect(inits(pod)).To(Equal([]string{"watch-errors"}))
		Expect(pod.Annotations).To(HaveKeyWithValue(watchv1.InjectedAnnotation, "gone=3,errors=1"))
	})

	It("gets all 256 keys that a Watcher may have as variables", func(ctx SpecContext) {
		var keys strings.Builder
		for n := range 256 {
			fmt.Fprintf(&keys, "KEY_%d: x, ", n)
		}
		in.watcher(ctx, "many", `configData: {`+keys.String()+`}, target: {name: chosen}, container: {name: many, image: i}`)
		pod := in.eventually(ctx, naming("many"))
		Expect(pod.Spec.InitContainers[0].Env).To(HaveLen(256))
		Expect(pod.Spec.InitContainers[0].Env).To(HaveEach(HaveField("ValueFrom.ConfigMapKeyRef.Name", "chosen")))
	})

	It("gets the sidecar of the newest generation", func(ctx SpecContext) {
		in.watcher(ctx, "edited", `container: {name: edited, image: "registry.example/old:1"}`)
		in.eventually(ctx, naming("edited"))
		suitetest.Must(api.Resource(watchv1.Resource()).Namespace(in.namespace).Patch(ctx, "edited", types.MergePatchType,
			[]byte(`{"spec":{"container":{"image":"registry.example/new:1"}}}`), metav1.PatchOptions{}))
		Eventually(ctx, func(g Gomega) {
			pod, err := in.try(ctx, naming("edited"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Spec.InitContainers[0].Image).To(Equal("registry.example/new:1"))
			g.Expect(pod.Annotations).To(HaveKeyWithValue(watchv1.InjectedAnnotation, "edited=2"))
		}).Should(Succeed())
	})

	DescribeTable("is rejected with one sentence, which kubectl prints,", func(
		ctx SpecContext, pod *corev1.Pod, text string,
	) {
		Expect(world.ErrorOf(in.try(ctx, pod))).To(And(MatchError(apierrors.IsInvalid, "is invalid"),
			MatchError(ContainSubstring(strings.ReplaceAll(text, "NAMESPACE", in.namespace)))))
	},
		Entry("if the Watcher does not exist", naming("nosuch"),
			`denied request: Watcher "nosuch" of the annotation x-kv8s.io/inject does not exist in namespace NAMESPACE, has `+
				`no container, or its container has the name of an init container of the pod; kubectl get watchers -n NAMESPACE`),
		Entry("if one of two does not exist", naming("errors,nosuch"), `Watcher "nosuch" of the annotation`),
		Entry("if the Watcher has no container", naming("static"), `Watcher "static" of the annotation`),
		Entry("if an init container of the pod has the name", naming("errors", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "watch-errors", Image: "registry.example/mine:1"}}
		}), `Watcher "errors" of the annotation`),
		Entry("if a container of the pod has the name", naming("errors", func(p *corev1.Pod) {
			p.Spec.Containers[0].Name = "watch-errors"
		}), `spec.initContainers[0].name: Duplicate value: "watch-errors"`),
		Entry("if the annotation names nothing", naming(" , "),
			"the annotation x-kv8s.io/inject names no Watcher; write names with commas between them, or remove it"),
		Entry("if the name cannot be printed", naming("a\nb"),
			"the annotation x-kv8s.io/inject names a Watcher that does not exist here, that has no container, or whose"),
		Entry("if the names are invalid", naming(strings.Repeat("x", 10_000)),
			"the annotation x-kv8s.io/inject names a Watcher that does not exist here"),
	)

	It("gets only Watchers of its own namespace", func(ctx SpecContext) {
		elsewhere := enabled(ctx, api, "x-kv8s.io/inject=enabled")
		elsewhere.eventuallyRejected(ctx, naming("errors"),
			`Watcher "errors" of the annotation x-kv8s.io/inject does not exist in namespace `+elsewhere.namespace)
	})

	DescribeTable("is not changed", func(ctx SpecContext, names string, labels ...string) {
		there := enabled(ctx, api, labels...)
		there.watcher(ctx, "errors", logs)
		eventuallyKnown(ctx, api)
		pod := suitetest.Must(there.try(ctx, naming(names)))
		Expect(pod.Spec.InitContainers).To(BeEmpty())
		Expect(pod.Labels).To(BeEmpty())
		Expect(pod.Annotations).To(HaveLen(1))
	},
		Entry("in a namespace without the label", "errors"),
		Entry("in a namespace where the label has another value", "nosuch", "x-kv8s.io/inject=disabled"),
	)

	It("in kube-system is not changed, even if the namespace is labelled by mistake", func(ctx SpecContext) {
		env.Cluster.Label(ctx, "kube-system", "x-kv8s.io/inject", "enabled")
		DeferCleanup(env.Cluster.Label, "kube-system", "x-kv8s.io/inject", "disabled")
		env.Cluster.RunPods(ctx, "kube-system")
		there := &injected{namespace: "kube-system", api: api}
		there.watcher(ctx, "mistaken", simple)
		DeferCleanup(func(ctx SpecContext) {
			Expect(api.Resource(watchv1.Resource()).Namespace("kube-system").Delete(ctx, "mistaken", metav1.DeleteOptions{})).
				To(Succeed())
		})

		eventuallyKnown(ctx, api)
		for _, name := range []string{"mistaken", "nosuch"} {
			pod := suitetest.Must(there.try(ctx, naming(name)))
			Expect(pod.Spec.InitContainers).To(BeEmpty())
		}
	})

	It("is rejected by Pod Security, which checks the sidecar too", func(ctx SpecContext) {
		there := enabled(ctx, api, "x-kv8s.io/inject=enabled", "pod-security.kubernetes.io/enforce=restricted")
		there.watcher(ctx, "root", `container: {name: root, image: i, `+
			`securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [SYS_ADMIN]}}}`)
		there.eventuallyRejected(ctx, naming("root", restricted), `violates PodSecurity "restricted:latest": unrestricted `+
			`capabilities (container "root" must not include "SYS_ADMIN" in securityContext.capabilities.add)`)
		Expect(world.ErrorOf(there.try(ctx, naming("root", restricted)))).
			To(MatchError(Not(ContainSubstring(`container "app"`))))
		there.watcher(ctx, "plain", `container: {name: plain, image: i, `+
			`securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}`)
		Expect(inits(there.eventually(ctx, naming("plain", restricted)))).To(Equal([]string{"plain"}))
	})

	It("of the samples gets the sidecar of the sample", func(ctx SpecContext) {
		sample := func(name string, into any) {
			GinkgoHelper()
			text := suitetest.Must(os.ReadFile("../../samples/sidecars/" + name))
			Expect(string(text)).To(HavePrefix("# "))
			Expect(yaml.UnmarshalStrict(text, into)).To(Succeed())
		}
		there := enabled(ctx, api, "x-kv8s.io/inject=enabled", "pod-security.kubernetes.io/enforce=baseline")
		for folder, container := range map[string]string{"": "served", "log-watch/": "log-watch"} {
			var watcher unstructured.Unstructured
			var pod corev1.Pod
			sample(folder+"watcher.yaml", &watcher.Object)
			sample(folder+"pod.yaml", &pod)
			suitetest.Must(api.Resource(watchv1.Resource()).Namespace(there.namespace).Create(ctx, &watcher,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}))
			Expect(inits(there.eventually(ctx, &pod))).To(Equal([]string{container}))
		}
		var job batchv1.Job
		sample("job.yaml", &job)
		suitetest.Must(env.Cluster.Client.BatchV1().Jobs(there.namespace).Create(ctx, &job, dryRun))
		made := &corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
		made.Name = job.Name
		Expect(inits(there.eventually(ctx, made))).To(Equal([]string{"served"}))
	})

	It("is rejected if the API server does not know a field of the sidecar, with its name", func(ctx SpecContext) {
		in.watcher(ctx, "future", `container: {name: future, image: i, fromTheFuture: {a: b}}`)
		in.eventuallyRejected(ctx, naming("future"), `unknown field "spec.initContainers[0].fromTheFuture"`)
	})
})

// restricted makes a pod comply with the restricted standard.
func restricted(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

var _ = Describe("A pod in a cluster without the Watcher CRD", func() {
	It("is created in namespaces without the label, and rejected in namespaces with it", func(ctx SpecContext) {
		kubetest.NeedMutatingPolicies(GinkgoTB(), env.Cluster.Config)
		release := env.Cluster.Namespace(ctx)
		objects := render(ctx, release, []string{"injection.yaml"}, "keeper.enabled=true", "sidecar.enabled=true")
		for _, o := range objects {
			if o.GetKind() == "MutatingAdmissionPolicy" {
				Expect(unstructured.SetNestedField(o.Object, "Absent", "spec", "paramKind", "kind")).To(Succeed())
			}
			if strings.HasSuffix(o.GetKind(), "Policy") { // another spec may have the chart's policy installed
				Expect(unstructured.SetNestedField(o.Object, release, "spec", "matchConstraints", "namespaceSelector",
					"matchLabels", "x-kv8s.io/inject")).To(Succeed())
			}
		}
		install(ctx, objects)
		there, elsewhere := enabled(ctx, nil, "x-kv8s.io/inject="+release), enabled(ctx, nil)
		there.eventuallyRejected(ctx, naming("errors"), "paramKind")
		suitetest.Must(elsewhere.try(ctx, naming("errors")))
	})
})
