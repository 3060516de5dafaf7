package admission_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// tryWatcher lets the API server admit a Watcher, without keeping it.
func tryWatcher(ctx context.Context, in dynamic.ResourceInterface, spec string) error {
	_, err := in.Create(ctx, watcherOf("new", spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// A sidecar runs with the rights of pods, so setting one is as creating a pod.
var _ = Describe("Who edits Watchers and may not create pods", Ordered, func() {
	var (
		in     *injected
		editor *world.Account
		theirs dynamic.ResourceInterface
	)
	BeforeAll(func(ctx SpecContext) {
		api := env.Cluster.ServeWatchers(ctx)
		in = enabled(ctx, api)
		install(ctx, within(in.namespace, render(ctx, in.namespace, []string{"admission-watchers.yaml"}, "resources.enabled=true")))
		editor = env.Cluster.Account(ctx, in.namespace, "editor", rbacv1.PolicyRule{
			APIGroups: []string{"watch.x-kv8s.io"}, Resources: []string{"watchers"}, Verbs: []string{"create", "patch", "get", "delete"},
		})
		client, err := dynamic.NewForConfig(editor.Config)
		Expect(err).NotTo(HaveOccurred())
		theirs = client.Resource(watchv1.Resource()).Namespace(in.namespace)
		in.watcher(ctx, "errors", logs)
		Eventually(ctx, func() error { return tryWatcher(ctx, theirs, simple) }).Should(HaveOccurred(), "the policy is in force")
	})
	patch := func(ctx context.Context, body string) error {
		_, err := theirs.Patch(ctx, "errors", types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}

	DescribeTable("lets through edits that add nothing to pods", func(ctx SpecContext, body string) {
		Expect(patch(ctx, body)).To(Succeed())
	},
		Entry("change static data", `{"spec":{"configData":{"LEVEL":"info"}}}`),
		Entry("remove static data", `{"spec":{"configData":{"LEVEL":null}}}`),
		Entry("add static data that is no variable", `{"spec":{"configData":{"app.yaml":"a: b"}}}`),
		Entry("change sources", `{"spec":{"sources":[{"key":"a","url":"a.example.com"}]}}`),
		Entry("write what is there already", `{"spec":{"container":{"image":"registry.example/watch:1"}}}`),
		Entry("annotate", `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`),
	)

	DescribeTable("refuses edits that become part of pods", func(ctx SpecContext, body string) {
		err := patch(ctx, body)
		Expect(err).To(MatchError(apierrors.IsForbidden, "is forbidden"))
		Expect(err).To(MatchError(ContainSubstring("denied request: container, volume, imagePullSecrets and new variables of configData become part of pods, " +
			"and system:serviceaccount:" + in.namespace + ":editor may not create pods in namespace " + in.namespace +
			"; leave them as they are, or ask for that right")))
	},
		Entry("add a variable", `{"spec":{"configData":{"LD_PRELOAD":"/rules/x.so"}}}`),
		Entry("add a variable by another way", `{"spec":{"configData":{"LEVEL":null,"level":"info"}}}`),
		Entry("change the container", `{"spec":{"container":{"args":["--steal"]}}}`),
		Entry("change a field of it that this Kubernetes does not know", `{"spec":{"container":{"fromTheFuture":1}}}`),
		Entry("remove the container", `{"spec":{"container":null,"volume":null,"imagePullSecrets":null}}`),
		Entry("change the volume", `{"spec":{"volume":{"emptyDir":null,"secret":{"secretName":"theirs"}}}}`),
		Entry("remove the volume", `{"spec":{"volume":null}}`),
		Entry("change the pull secret", `{"spec":{"imagePullSecrets":{"name":"theirs"}}}`),
		Entry("remove the pull secret", `{"spec":{"imagePullSecrets":null}}`),
	)

	It("lets who may not create pods make a Watcher without a sidecar, and none with one", func(ctx SpecContext) {
		Expect(tryWatcher(ctx, theirs, `configData: {a: b}`)).To(Succeed())
		Expect(tryWatcher(ctx, theirs, simple)).To(MatchError(ContainSubstring("may not create pods in namespace " + in.namespace)))
	})

	It("lets who may create pods set a sidecar", func(ctx SpecContext) {
		right := env.Cluster.Account(ctx, in.namespace, "deployer",
			rbacv1.PolicyRule{APIGroups: []string{"watch.x-kv8s.io"}, Resources: []string{"watchers"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}})
		client, err := dynamic.NewForConfig(right.Config)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error {
			return tryWatcher(ctx, client.Resource(watchv1.Resource()).Namespace(in.namespace), simple)
		}).Should(Succeed())
	})
})
