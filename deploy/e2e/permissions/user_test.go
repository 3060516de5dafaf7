package permissions_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// tryWatcher creates a Watcher as a dry run.
func tryWatcher(ctx context.Context, in *watchv1.Namespaced, spec string) error {
	w := &watchv1.Watcher{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	if err := yaml.UnmarshalStrict([]byte("{"+spec+"}"), &w.Spec); err != nil {
		return err
	}
	return world.ErrorOf(in.Create(ctx, w, dryRun))
}

// A sidecar runs with the permissions of pods, so setting a sidecar amounts to creating a pod.
var _ = Describe("A user", Ordered, func() {
	var (
		in     *injected
		theirs *watchv1.Namespaced
	)
	BeforeAll(func(ctx SpecContext) {
		in = enabled(ctx, kubetest.Watchers(ctx, GinkgoTB(), env.Cluster.Config))
		install(ctx, within(in.namespace,
			render(ctx, in.namespace, []string{"admission-watchers.yaml"}, "keeper.enabled=true")))
		theirs = in.as(ctx, "editor", kubetest.May("watch.x-kv8s.io", "watchers", "create", "patch", "get", "delete"))
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
		theirs := in.as(ctx, "operator", sidecars, pods, kubetest.May("watch.x-kv8s.io", "watchers/privileged", "use"))
		for what, spec := range beyondBaseline {
			Eventually(ctx, func() error { return tryWatcher(ctx, theirs, spec) }).Should(Succeed(), what)
		}
	})
})
