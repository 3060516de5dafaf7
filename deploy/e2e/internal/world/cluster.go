package world

import (
	"context"
	_ "embed" // the policy
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// Cluster is a real API server with administrator access.
type Cluster struct {
	// Kubeconfig is the file of the administrator, Config its content and Client a client.
	Kubeconfig string
	Config     *rest.Config
	Client     kubernetes.Interface
}

// OpenCluster reads a kubeconfig.
func OpenCluster(kubeconfig string) *Cluster {
	GinkgoHelper()
	config := suitetest.Must(clientcmd.BuildConfigFromFlags("", kubeconfig))
	config.QPS, config.UserAgent = -1, "curl-me-that-e2e"
	return &Cluster{Kubeconfig: kubeconfig, Config: config, Client: suitetest.Must(kubernetes.NewForConfig(config))}
}

// Namespace creates a namespace and deletes it at the end of the spec. Without a namespace controller it stays in
// Terminating, until the control plane is deleted.
func (c *Cluster) Namespace(ctx context.Context) string {
	GinkgoHelper()
	return kubetest.Namespace(ctx, GinkgoTB(), c.Client, "curl-me-that-e2e-", nil)
}

// Label sets a label of a namespace.
func (c *Cluster) Label(ctx context.Context, namespace, name, value string) {
	GinkgoHelper()
	suitetest.Must(c.Client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, name, value), metav1.PatchOptions{}))
}

// RunPods creates the service account that pods in a namespace need, because no controller does.
func (c *Cluster) RunPods(ctx context.Context, namespace string) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	Expect(ErrorOf(c.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}))).
		To(Or(Succeed(), MatchError(apierrors.IsAlreadyExists, "already exists")))
}

// Credential creates a Secret with a team's credential for hosts.
func (c *Cluster) Credential(ctx context.Context, namespace, name, hosts string, data map[string]string) {
	GinkgoHelper()
	suitetest.Must(c.Client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"x-kv8s.io/curl-credentials": "true"},
			Annotations: map[string]string{"x-kv8s.io/curl-hosts": hosts},
		},
		StringData: data,
	}, metav1.CreateOptions{}))
}

// denial is a policy and its binding, with placeholders for the namespace and the key.
//
//go:embed denial.yaml
var denial string

// Deny makes the API server reject ConfigMaps with a key in data, and waits until it does. lift ends that.
func (w *World) Deny(ctx context.Context, key string) (lift func(context.Context)) {
	GinkgoHelper()
	manifest := strings.NewReplacer("NAMESPACE", w.Namespace, "KEY", key).Replace(denial)
	Expect(controlplane.ApplyManifest(ctx, w.Cluster.Config, "e2e", "", []byte(manifest))).To(Succeed())
	api := w.Cluster.Client.AdmissionregistrationV1()
	remove := func(ctx context.Context) {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, w.Namespace, metav1.DeleteOptions{}) // it may be gone
		_ = api.ValidatingAdmissionPolicies().Delete(ctx, w.Namespace, metav1.DeleteOptions{})
	}
	DeferCleanup(func(ctx SpecContext) { remove(ctx) })

	probe := w.Create(ctx, "probe")
	tried := func() error {
		_, err := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Patch(ctx, probe.Name, types.MergePatchType,
			[]byte(`{"data":{"`+key+`":"x"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	Eventually(tried).WithPolling(eventPolling).ShouldNot(Succeed(), "the policy is in force")
	return func(ctx context.Context) {
		GinkgoHelper()
		remove(ctx)
		Eventually(tried).WithPolling(eventPolling).Should(Succeed(), "the policy is gone")
	}
}
