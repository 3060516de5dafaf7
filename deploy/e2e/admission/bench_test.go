package admission_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// BenchmarkPatch measures what the policy costs: processor time of the API server for
// a patch of the writer, to which it applies, beside that of another account, in rounds
// of both. The middle round counts. Run it with
//
//	HELM=… bin/control-plane exec -- go test ./deploy/e2e/admission -run xxx -bench Patch -benchtime 9x
func BenchmarkPatch(b *testing.B) {
	RegisterTestingT(b)
	meter, err := cluster.Connect()
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	ctx := b.Context()
	namespace := benchNamespace(ctx, meter.Kubernetes)
	policies := render(ctx, namespace, []string{"admission-writer.yaml"})
	apply(ctx, config, policies)
	b.Cleanup(func() { remove(context.WithoutCancel(ctx), config, policies) })
	other, own := bearer(ctx, meter.Kubernetes, config, namespace, "other"), bearer(ctx, meter.Kubernetes, config, namespace, release+"-writer")

	for _, object := range []struct {
		name string
		cm   *corev1.ConfigMap
		key  string
		// count is how many patches are compared at a time: of large ones, etcd has no room
		// for as many.
		count int
	}{{"usual", usual(), "mine", 200}, {"unusual", asking(), "mine", 200}, {"large", large(), "key-007", 20}} {
		object.cm.Finalizers = nil
		created, err := meter.Kubernetes.CoreV1().ConfigMaps(namespace).Create(ctx, object.cm, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// patched returns the milliseconds for each of some patches.
		patched := func(as kubernetes.Interface) float64 {
			before, err := meter.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			for i := range object.count {
				_, err := as.CoreV1().ConfigMaps(namespace).Patch(ctx, created.Name, types.StrategicMergePatchType,
					fmt.Appendf(nil, `{"data":{%q:"%d %d"}}`, object.key, i, time.Now().UnixNano()), metav1.PatchOptions{FieldManager: annotation.FieldManager})
				Expect(err).NotTo(HaveOccurred())
			}
			after, err := meter.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			return after.Since(before).CPU.Seconds() * 1000 / float64(object.count)
		}
		b.Run(object.name, func(b *testing.B) {
			var without, more []float64
			for b.Loop() {
				bare := patched(other)
				without, more = append(without, bare), append(more, 100*(patched(own)/bare-1))
			}
			slices.Sort(without)
			slices.Sort(more)
			b.ReportMetric(without[len(without)/2], "cpu-ms/patch")
			b.ReportMetric(more[len(more)/2], "%-more")
			b.ReportMetric(more[0], "%-least")
			b.ReportMetric(more[len(more)-1], "%-most")
		})
	}
}

// usual returns a ConfigMap as most are: one key, that was filled.
func usual() *corev1.ConfigMap {
	filled := status.Status{Keys: map[string]status.Entry{"mine": {
		URL: "https://a.example.com/", SHA256: digest, Size: 7, ETag: `"x"`, Fence: status.Fence{Epoch: 1, Seq: 7},
	}}}
	return asking(with(annotation.DefaultKey, "mine=https://a.example.com/"), with(annotation.StatusKey, filled.String()),
		func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData = map[string]string{"mine": "m"}, nil })
}

// bearer returns a client by a token of an account, as pods have it.
func bearer(ctx context.Context, admin kubernetes.Interface, config *rest.Config, namespace, name string) kubernetes.Interface {
	accounts := admin.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	own := rest.AnonymousClientConfig(config)
	own.BearerToken, own.QPS = token.Status.Token, -1
	client, err := kubernetes.NewForConfig(own)
	Expect(err).NotTo(HaveOccurred())
	return client
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
