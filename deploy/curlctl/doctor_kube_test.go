package curlctl_test

import (
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("doctor --kubernetes", func() {
	It("names the binding that a service account lacks", func(ctx SpecContext) {
		client, config, namespace := inCluster(ctx)
		objects := suitetest.Must(dynamic.NewForConfig(config))
		// The rights of the chart, with names and a namespace of this spec.
		text := suitetest.Must(os.ReadFile("../docker/manifests/rights.yaml"))
		renamed := strings.NewReplacer("curl-me-that-", namespace+"-", "namespace: curl-me-that", "namespace: "+namespace)
		for document := range strings.SplitSeq(renamed.Replace(string(text)), "\n---\n") {
			o := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
			resource := map[string]string{
				"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings",
				"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
			}[o.GetKind()]
			if resource == "" {
				continue
			}
			kind := o.GroupVersionKind()
			at := objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}).
				Namespace(o.GetNamespace())
			body := suitetest.Must(o.MarshalJSON())
			_, err := at.Patch(ctx, o.GetName(), types.ApplyPatchType, body,
				metav1.PatchOptions{FieldManager: "spec", Force: new(true)})
			Expect(err).NotTo(HaveOccurred(), o.GetName())
			DeferCleanup(func(ctx SpecContext) { _ = at.Delete(ctx, o.GetName(), metav1.DeleteOptions{}) })
		}
		w := newWorld(ctx)
		doctor := func() result {
			return w.run(ctx, "doctor", "--kubernetes="+namespace+"/"+namespace, "--kubeconfig", os.Getenv("KUBECONFIG"))
		}
		Eventually(ctx, func() int { return doctor().code }).Should(Equal(0), "the API server knows the bindings")
		Expect(strings.Count(doctor().out, "has its rights")).To(Equal(3))

		Expect(doctor().out).NotTo(ContainSubstring("egress proxy"))
		Expect(client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "fetcher", Labels: map[string]string{
				"app.kubernetes.io/component": "fetcher", "app.kubernetes.io/instance": namespace,
			}},
			Spec: corev1.PodSpec{
				ServiceAccountName: namespace + "-watcher",
				Containers:         []corev1.Container{{Name: "fetcher", Image: "any", Args: []string{"--proxy-resolves"}}},
			},
		}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
		Expect(doctor().code).To(Equal(0))
		Expect(flat(doctor().out)).To(ContainSubstring(
			"names are checked by fetchers, and addresses by the egress proxy: let it deny private addresses"))

		Expect(client.RbacV1().ClusterRoleBindings().Delete(ctx, namespace+"-writer", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func() int { return doctor().code }).Should(Equal(7))
		Expect(flat(doctor().out)).To(And(
			ContainSubstring(namespace+"-writer may not get configmaps, patch configmaps, create events, get events, "+
				"patch events"),
			ContainSubstring("restore ClusterRoleBinding "+namespace+"-writer")))

		Expect(client.CoreV1().ServiceAccounts(namespace).Delete(ctx, namespace+"-watcher",
			metav1.DeleteOptions{})).To(Succeed())
		Expect(doctor().out).To(ContainSubstring("there is no service account"))
	})
})
