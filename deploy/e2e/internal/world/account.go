package world

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// RulesOf returns the permissions in watched namespaces that the chart grants to a service, as rendered for docker
// compose.
func RulesOf(service string) []rbacv1.PolicyRule {
	GinkgoHelper()
	manifest := suitetest.Must(os.ReadFile("../../docker/manifests/rights.yaml"))
	for _, o := range suitetest.Must(controlplane.Decode(manifest)) {
		if o.GetKind() == "ClusterRole" && o.GetName() == "curl-me-that-"+service {
			role := &rbacv1.ClusterRole{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role)).To(Succeed())
			return role.Rules
		}
	}
	Fail("no role of " + service)
	return nil
}

// With returns a function for Options.Kubeconfigs that creates an account with these permissions.
func (c *Cluster) With(account string, rules ...rbacv1.PolicyRule) func(ctx context.Context, namespace string) string {
	return func(ctx context.Context, namespace string) string {
		return c.Account(ctx, namespace, account, rules...).Kubeconfig
	}
}

// KeeperWithSidecars returns a function for Options.Kubeconfigs: an account with the permissions for sidecars.
func KeeperWithSidecars(c *Cluster) func(ctx context.Context, namespace string) string {
	return c.With("curl-me-that-keeper", append(RulesOf(Keeper), kubetest.May("", "pods", "list", "watch"))...)
}

// LeastRights gives each service with access to Kubernetes an account with minimal permissions.
func LeastRights(c *Cluster) map[string]func(ctx context.Context, namespace string) string {
	return map[string]func(context.Context, string) string{
		Watcher: c.With(Watcher, RulesOf(Watcher)...), Writer: c.With(Writer, RulesOf(Writer)...),
		Keeper: c.With("curl-me-that-keeper", RulesOf(Keeper)...),
	}
}

// WriterAccount gives the writer an account with minimal permissions, and stores it in account.
func (c *Cluster) WriterAccount(account **Account) map[string]func(ctx context.Context, namespace string) string {
	return map[string]func(context.Context, string) string{Writer: func(ctx context.Context, namespace string) string {
		*account = c.Account(ctx, namespace, Writer, RulesOf(Writer)...)
		return (*account).Kubeconfig
	}}
}

// Account is a service account with permissions in one namespace.
type Account struct {
	// Kubeconfig is a file with a token of the account.
	Kubeconfig string
	// Config is the parsed kubeconfig, and Client its client.
	Config *rest.Config
	Client kubernetes.Interface

	cluster *Cluster
	// namespace of the permissions, and home of the account.
	namespace, home, name string
	probe                 authorizationv1.ResourceAttributes
}

// Account creates a service account, and waits until its permissions are in force.
func (c *Cluster) Account(ctx context.Context, namespace, name string, rules ...rbacv1.PolicyRule) *Account {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	suitetest.Must(c.Client.CoreV1().ServiceAccounts(namespace).
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}))
	return c.ExistingAccount(ctx, namespace, name).In(ctx, namespace, rules...)
}

// In grants permissions in a namespace, and waits until they are in force. Grant and Revoke of the result apply
// to that namespace.
func (a *Account) In(ctx context.Context, namespace string, rules ...rbacv1.PolicyRule) *Account {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: a.name}, Rules: rules}
	suitetest.Must(a.cluster.Client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}))
	there := *a
	there.namespace = namespace
	there.probe = authorizationv1.ResourceAttributes{
		Namespace: namespace, Group: rules[0].APIGroups[0],
		Resource: rules[0].Resources[0], Verb: rules[0].Verbs[0],
	}
	there.Grant(ctx)
	return &there
}

// ExistingAccount returns an existing service account with its current permissions.
func (c *Cluster) ExistingAccount(ctx context.Context, namespace, name string) *Account {
	GinkgoHelper()
	administrator := suitetest.Must(controlplane.Load(c.Kubeconfig, ""))
	own := suitetest.Must(controlplane.Account(ctx, administrator, namespace, name))
	a := &Account{cluster: c, namespace: namespace, home: namespace, name: name}
	a.Kubeconfig = filepath.Join(GinkgoT().TempDir(), name+".kubeconfig")
	Expect(controlplane.Write(own, a.Kubeconfig)).To(Succeed())
	a.Config = suitetest.Must(controlplane.ClientConfig(own))
	a.Config.QPS = -1
	a.Client = suitetest.Must(kubernetes.NewForConfig(a.Config))
	return a
}

// Grant grants the permissions, and waits until they are in force.
func (a *Account) Grant(ctx context.Context) {
	GinkgoHelper()
	suitetest.Must(a.cluster.Client.RbacV1().RoleBindings(a.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.name, Namespace: a.home}},
	}, metav1.CreateOptions{}))
	Eventually(ctx, a.may).WithPolling(eventPolling).Should(BeTrue(), "permissions of %s", a.name)
}

// Revoke removes the permissions, and waits until they are gone.
func (a *Account) Revoke(ctx context.Context) {
	GinkgoHelper()
	Expect(a.cluster.Client.RbacV1().RoleBindings(a.namespace).Delete(ctx, a.name, metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, a.may).WithPolling(eventPolling).Should(BeFalse(), "permissions of %s", a.name)
}

func (a *Account) may(ctx context.Context) (bool, error) {
	answer, err := a.Client.AuthorizationV1().SelfSubjectAccessReviews().
		Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a.probe},
		}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
