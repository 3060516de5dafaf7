package watchers_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// seesNamespace grants keeper the right to watch its namespace, as the chart does.
func (h *home) seesNamespace(ctx context.Context) {
	GinkgoHelper()
	api := h.Cluster.Client.RbacV1()
	name := metav1.ObjectMeta{Name: h.Namespace}
	suitetest.Must(api.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{h.Namespace},
		Verbs: []string{"list", "watch"},
	}}}, metav1.CreateOptions{}))
	suitetest.Must(api.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: h.Namespace},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "curl-me-that-keeper", Namespace: h.Namespace}},
	}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) {
		Expect(api.ClusterRoleBindings().Delete(ctx, h.Namespace, metav1.DeleteOptions{})).To(Succeed())
		Expect(api.ClusterRoles().Delete(ctx, h.Namespace, metav1.DeleteOptions{})).To(Succeed())
	})
}

// label sets a label of the namespace.
func (h *home) label(ctx context.Context, name, value string) {
	GinkgoHelper()
	suitetest.Must(h.Cluster.Client.CoreV1().Namespaces().Patch(ctx, h.Namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, name, value), metav1.PatchOptions{}))
}

var _ = Describe("The condition Injectable", func() {
	const sidecar = `container: {name: watch, image: i, securityContext: {allowPrivilegeEscalation: false, ` +
		`capabilities: {drop: [ALL]}}}`

	It("gives the obstacle, and follows changes of the namespace and the spec", func(ctx SpecContext) {
		h := open(ctx)
		h.keeper.ShouldStop(ctx)
		h.seesNamespace(ctx)
		h.keeper = h.Launch(ctx, h.keeper.Name, "--sidecars")
		h.keeper.EventuallyReady(ctx)
		w := h.apply(ctx, "errors", sidecar)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/NamespaceNotEnabled")
		w.eventuallyReady(ctx)
		h.label(ctx, watchv1.InjectLabel, watchv1.InjectValue)
		w.eventually(ctx, watchv1.ConditionInjectable, "True/Injectable")
		Expect(w.message(ctx, watchv1.ConditionInjectable)).
			To(Equal("pods with the annotation x-kv8s.io/inject: errors get container watch when they are created"))
		h.label(ctx, "pod-security.kubernetes.io/enforce", "restricted")
		w.apply(ctx, `container: {name: watch, image: i, securityContext: {privileged: true}}`)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/PodSecurity")
		Expect(w.message(ctx, watchv1.ConditionInjectable)).
			To(ContainSubstring(`must not set securityContext.privileged=true`))
		h.label(ctx, "pod-security.kubernetes.io/enforce", "privileged")
		w.eventually(ctx, watchv1.ConditionInjectable, "True/Injectable")
		w.apply(ctx, `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionInjectable, "-")
		w.eventuallyReady(ctx)
	})

	It("is False if the operator has not enabled sidecars, without reading a namespace", func(ctx SpecContext) {
		h := open(ctx)
		h.label(ctx, watchv1.InjectLabel, watchv1.InjectValue)
		w := h.apply(ctx, "errors", sidecar)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/PoliciesMissing")
		w.eventuallyReady(ctx)
	})
})
