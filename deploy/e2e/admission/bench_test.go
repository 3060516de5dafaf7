package admission_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// BenchmarkPatch tells what the policy costs: a patch of one key as the writer,
// to which it applies, beside that of another account. Run it with
//
//	HELM=… bin/control-plane exec -- go test ./deploy/e2e/admission -run xxx -bench Patch
func BenchmarkPatch(b *testing.B) {
	RegisterTestingT(b)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	ctx := b.Context()
	namespace := benchNamespace(ctx, admin)
	policies := render(ctx, namespace, []string{"admission-writer.yaml"})
	apply(ctx, config, policies)
	b.Cleanup(func() { remove(context.WithoutCancel(ctx), config, policies) })

	for _, object := range []struct {
		name string
		cm   *corev1.ConfigMap
		key  string
	}{{"small", asking(), "mine"}, {"large", large(), "key-007"}} {
		object.cm.Finalizers = nil
		created, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, object.cm, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, as := range []string{"other", release + "-writer"} {
			impersonating := rest.CopyConfig(config)
			impersonating.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + as
			client, err := kubernetes.NewForConfig(impersonating)
			Expect(err).NotTo(HaveOccurred())
			b.Run(object.name+"/as-"+as, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, created.Name, types.StrategicMergePatchType,
						fmt.Appendf(nil, `{"data":{%q:"%d %d"}}`, object.key, i, time.Now().UnixNano()),
						metav1.PatchOptions{FieldManager: annotation.FieldManager})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkCreate measures what the policy of annotations costs: a dry run of the
// creation of an annotated ConfigMap, and of one that it does not concern, beside
// the same without the policy. Run it as BenchmarkPatch.
func BenchmarkCreate(b *testing.B) {
	RegisterTestingT(b)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	heard := &warnings{}
	config.QPS, config.WarningHandler = -1, heard
	admin, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	ctx := b.Context()
	namespace := benchNamespace(ctx, admin)
	create := func(b *testing.B) {
		b.Helper()
		for _, o := range []struct{ name, value string }{{"annotated", "a=a.example.com b=b.example.com"}, {"128-pairs", numbered(128)}, {"plain", ""}} {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
			if o.value != "" {
				cm.Annotations = map[string]string{annotation.DefaultKey: o.value}
			}
			b.Run(o.name, func(b *testing.B) {
				for b.Loop() {
					if _, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("without", create)
	policies := render(ctx, namespace, []string{"admission-annotations.yaml"})
	heard.policy = policies[0].GetName()
	apply(ctx, config, policies)
	b.Cleanup(func() { remove(context.WithoutCancel(ctx), config, policies) })
	Eventually(ctx, func() ([]string, error) {
		err := try(ctx, admin.CoreV1().ConfigMaps(namespace), "not correct")
		return heard.texts, err
	}).WithTimeout(10 * time.Second).ShouldNot(BeEmpty())
	b.Run("with", create)
}

// benchNamespace returns a namespace in which everybody may patch ConfigMaps.
func benchNamespace(ctx context.Context, admin kubernetes.Interface) string {
	created, err := admin.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "curl-me-that-bench-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	meta := metav1.ObjectMeta{Name: "patch", Namespace: created.Name}
	_, err = admin.RbacV1().Roles(created.Name).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"patch"}},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}}
	for _, name := range []string{"other", release + "-writer"} {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: created.Name})
	}
	_, err = admin.RbacV1().RoleBindings(created.Name).Create(ctx, binding, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return created.Name
}
