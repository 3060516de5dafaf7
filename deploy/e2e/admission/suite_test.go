// Package admission checks the chart's ValidatingAdmissionPolicies and the writer's rights on a
// real API server.
package admission_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestAdmission(t *testing.T) { world.Run(t, "Admission") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// digest is the digest of a body that no spec reads.
var digest = strings.Repeat("ab", 32)

// reporting returns a status with keys that were written and one that was not.
func reporting(keys ...string) string {
	s := status.Status{Keys: map[string]status.Entry{"exists": {Error: "KeyExists"}}}
	for _, key := range keys {
		s.Keys[key] = status.Entry{
			URL: `https://a.example.com/"theirs":{"url":"x","sha256":"` + digest + `"}?{}`, SHA256: digest, Size: 7, ETag: `"x"`,
			Fence: status.Fence{Epoch: 1, Seq: 7},
		}
	}
	return s.String()
}

// trait changes an object before it is created.
type trait func(*corev1.ConfigMap)

// asking returns a ConfigMap with requests for mine and two, and for exists, which was there
// before. It once asked for old. All other keys have other owners.
func asking(traits ...trait) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "asking-",
			Labels:       map[string]string{"app": "x"},
			Finalizers:   []string{"example.com/held"},
			Annotations: map[string]string{
				annotation.DefaultKey: "mine=https://a.example.com/?theirs=1 \n\t two=b.example.com\n  exists=c.example.com ",
				annotation.LegacyKey:  "legacy=https://a.example.com",
				annotation.StatusKey:  reporting("mine", "old", "oldbin"),
				"example.com/other":   "other",
			},
		},
		Data:       map[string]string{"mine": "m", "old": "o", "exists": "e", "theirs": "t", "legacy": "l"},
		BinaryData: map[string][]byte{"bin": {0xff}, "oldbin": {0xfe}},
	}
	for _, t := range traits {
		t(cm)
	}
	return cm
}

func without(key string) trait {
	return func(cm *corev1.ConfigMap) { delete(cm.Annotations, key) }
}

func with(key, value string) trait {
	return func(cm *corev1.ConfigMap) { cm.Annotations[key] = value }
}

func requesting(pairs string) trait { return with(annotation.DefaultKey, pairs) }

func suspending(value string) trait { return with("x-kv8s.io/curl-suspend", value) }

// bare removes all annotations of ours.
func bare(cm *corev1.ConfigMap) { cm.Annotations = nil }

func ignoring(cm *corev1.ConfigMap) { cm.Labels[annotation.IgnoreLabel] = annotation.IgnoreValue }

func named(namespace, name string) trait {
	return func(cm *corev1.ConfigMap) { cm.Namespace, cm.Name, cm.GenerateName = namespace, name, "" }
}

// create creates an object for the duration of the spec.
func create(ctx context.Context, namespace string, cm *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	if cm.Namespace != "" {
		namespace = cm.Namespace
	}
	api := env.Cluster.Client.CoreV1().ConfigMaps(namespace)
	created := suitetest.Must(api.Create(ctx, cm, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) {
		suitetest.Must(api.Patch(ctx, created.Name, apitypes.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{}))
		Expect(api.Delete(ctx, created.Name, metav1.DeleteOptions{})).To(Succeed())
	})
	return created
}

// read returns the object of the moment.
func read(ctx context.Context, cm *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	return suitetest.Must(env.Cluster.Client.CoreV1().ConfigMaps(cm.Namespace).Get(ctx, cm.Name, metav1.GetOptions{}))
}

// patch changes an object as an account, with the writer's kind of patch.
func patch(ctx context.Context, as *world.Account, cm *corev1.ConfigMap, body string) error {
	return world.ErrorOf(as.Client.CoreV1().ConfigMaps(cm.Namespace).Patch(ctx, cm.Name, apitypes.StrategicMergePatchType,
		[]byte(body), metav1.PatchOptions{FieldManager: annotation.FieldManager}))
}

// dryRun only asks whether the API server would create an object.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// asks returns annotations that ask for a key, unless name replaces that.
func asks(name, value string) map[string]string {
	return map[string]string{annotation.DefaultKey: "a=x.example.com", name: value}
}

// try creates a ConfigMap as a dry run.
func try(ctx context.Context, api corev1client.ConfigMapInterface, annotations map[string]string) error {
	return world.ErrorOf(api.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-", Annotations: annotations},
	}, dryRun))
}

// rule grants verbs of a resource.
func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// beForbidden matches the error of a policy with a text.
func beForbidden(text string) types.GomegaMatcher {
	return And(MatchError(apierrors.IsForbidden, "is forbidden"), MatchError(ContainSubstring(text)))
}

const (
	chart   = "../../chart"
	release = "curl-me-that"
)

// render returns the objects from the given templates of the chart.
func render(ctx context.Context, namespace string, templates []string, set ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	return suitetest.Must(manifest.Render(ctx, manifest.Chart{
		Dir: chart, Release: release, Namespace: namespace, Templates: templates,
		Set: append(set, "networkPolicy.enabled=false"),
	}))
}

// within limits the bindings of policies to one namespace, because other suites use the API server
// at the same time.
func within(namespace string, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			Expect(unstructured.SetNestedField(o.Object, namespace,
				"spec", "matchResources", "namespaceSelector", "matchLabels", corev1.LabelMetadataName)).To(Succeed())
		}
	}
	return objects
}

// install creates objects for the duration of the spec.
func install(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	applier := suitetest.Must(access.NewApplier(env.Cluster.Config, manifest.Manager))
	Expect(applier.Apply(ctx, "", objects...)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(manifest.Delete(ctx, applier, "", objects)).To(Succeed()) })
}

// writer creates the writer's service account with the rights from the chart, and returns once the
// policy is in force.
func writer(ctx context.Context, namespace string) *world.Account {
	GinkgoHelper()
	objects := render(ctx, namespace, []string{"serviceaccounts.yaml", "rbac.yaml"})
	install(ctx, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !strings.HasSuffix(o.GetName(), "-writer") || o.GetKind() == "Role" || o.GetKind() == "RoleBinding"
	}))
	account := env.Cluster.ExistingAccount(ctx, namespace, release+"-writer")
	install(ctx, render(ctx, namespace, []string{"admission-writer.yaml"}))
	// The probe needs a namespace of its own, because a world records all writes in its namespace.
	probe := create(ctx, env.Cluster.Namespace(ctx),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}})
	Eventually(ctx, func() error {
		return patch(ctx, account, probe, `{"data":{"probe":"x"}}`)
	}).Should(MatchError(ContainSubstring("the writer leaves ConfigMaps without the annotation alone")),
		"the policy is in force")
	return account
}
