package permissions_test

import (
	"context"
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
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// having returns the spec of a Watcher whose container has these fields.
func having(fields string) string { return "container: {name: x, image: x, " + fields + "}" }

// sidecars and pods are the permissions to set sidecars.
var (
	sidecars = kubetest.May("watch.x-kv8s.io", "watchers", "create")
	pods     = kubetest.May("", "pods", "create")
)

// as returns a client for the namespace's Watchers that uses an account with these permissions.
func (i *injected) as(ctx context.Context, name string, rules ...rbacv1.PolicyRule) *watchv1.Namespaced {
	GinkgoHelper()
	return suitetest.Must(watchv1.NewClient(env.Cluster.Account(ctx, i.namespace, name, rules...).Config, nil)).
		In(i.namespace)
}

// injected is a namespace with sidecar injection.
type injected struct {
	namespace string
	watchers  *watchv1.Client
}

// watcher creates a Watcher.
func (i *injected) watcher(ctx context.Context, name, spec string) {
	GinkgoHelper()
	suitetest.Must(kubetest.ApplyWatcher(ctx, i.watchers.In(i.namespace), name, spec))
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

// enabled creates a namespace with labels (name=value) in which pods can be created.
func enabled(ctx context.Context, watchers *watchv1.Client, labels ...string) *injected {
	GinkgoHelper()
	i := &injected{namespace: env.Cluster.Namespace(ctx), watchers: watchers}
	for _, label := range labels {
		name, value, _ := strings.Cut(label, "=")
		env.Cluster.Label(ctx, i.namespace, name, value)
	}
	env.Cluster.RunPods(ctx, i.namespace)
	return i
}

// eventuallyKnown waits until the policies see a new namespace and a new Watcher, and therefore all earlier
// ones.
func eventuallyKnown(ctx context.Context, watchers *watchv1.Client) {
	GinkgoHelper()
	now := enabled(ctx, watchers, "x-kv8s.io/inject=enabled")
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

// restricted makes a pod comply with the restricted standard.
func restricted(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

var _ = Describe("A pod", Ordered, func() {
	var (
		watchers *watchv1.Client
		in       *injected
	)
	BeforeAll(func(ctx SpecContext) {
		kubetest.NeedMutatingPolicies(GinkgoTB(), env.Cluster.Config)
		watchers = kubetest.Watchers(ctx, GinkgoTB(), env.Cluster.Config)
		release := env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, release, []string{"injection.yaml"}, "keeper.enabled=true", "sidecar.enabled=true"))
		in = enabled(ctx, watchers, "x-kv8s.io/inject=enabled")
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
		suitetest.Must(watchers.In(in.namespace).Patch(ctx, "edited", types.MergePatchType,
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
		elsewhere := enabled(ctx, watchers, "x-kv8s.io/inject=enabled")
		elsewhere.eventuallyRejected(ctx, naming("errors"),
			`Watcher "errors" of the annotation x-kv8s.io/inject does not exist in namespace `+elsewhere.namespace)
	})

	DescribeTable("is not changed", func(ctx SpecContext, names string, labels ...string) {
		there := enabled(ctx, watchers, labels...)
		there.watcher(ctx, "errors", logs)
		eventuallyKnown(ctx, watchers)
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
		there := &injected{namespace: "kube-system", watchers: watchers}
		there.watcher(ctx, "mistaken", simple)
		DeferCleanup(func(ctx SpecContext) {
			Expect(watchers.In("kube-system").Delete(ctx, "mistaken", metav1.DeleteOptions{})).
				To(Succeed())
		})

		eventuallyKnown(ctx, watchers)
		for _, name := range []string{"mistaken", "nosuch"} {
			pod := suitetest.Must(there.try(ctx, naming(name)))
			Expect(pod.Spec.InitContainers).To(BeEmpty())
		}
	})

	It("is rejected by Pod Security, which checks the sidecar too", func(ctx SpecContext) {
		there := enabled(ctx, watchers, "x-kv8s.io/inject=enabled", "pod-security.kubernetes.io/enforce=restricted")
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
		there := enabled(ctx, watchers, "x-kv8s.io/inject=enabled", "pod-security.kubernetes.io/enforce=baseline")
		for folder, container := range map[string]string{"": "served", "log-watch/": "log-watch"} {
			var watcher watchv1.Watcher
			var pod corev1.Pod
			sample(folder+"watcher.yaml", &watcher)
			sample(folder+"pod.yaml", &pod)
			suitetest.Must(watchers.In(there.namespace).Create(ctx, &watcher,
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
