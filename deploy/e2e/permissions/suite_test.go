// Package permissions runs the shipped NATS configuration and compares it with its README: each identity can do
// exactly what it needs. It also checks the admission policies of the chart and the permissions of its service
// accounts on a real API server.
package permissions_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

func TestPermissions(t *testing.T) { world.Run(t, "Permissions") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// trait changes an object before it is created.
type trait func(*corev1.ConfigMap)

// asking returns a ConfigMap that requests mine and two, and exists, which another owner had before. The writer
// also wrote old and oldbin, which are no longer requested. All other keys have other owners.
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

// bare removes all annotations.
func bare(cm *corev1.ConfigMap) { cm.Annotations = nil }

// nothingElse leaves only the key old and the status.
func nothingElse(cm *corev1.ConfigMap) {
	cm.ObjectMeta = metav1.ObjectMeta{
		GenerateName: cm.GenerateName, Annotations: map[string]string{annotation.StatusKey: reporting("old")},
	}
	cm.Data, cm.BinaryData = map[string]string{"old": "o"}, nil
}

func ignoring(cm *corev1.ConfigMap) { cm.Labels[annotation.IgnoreLabel] = annotation.IgnoreValue }

func named(namespace, name string) trait {
	return func(cm *corev1.ConfigMap) { cm.Namespace, cm.Name, cm.GenerateName = namespace, name, "" }
}

// create creates an object until the end of the spec.
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

// current returns the current object.
func current(ctx context.Context, cm *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	return suitetest.Must(env.Cluster.Client.CoreV1().ConfigMaps(cm.Namespace).Get(ctx, cm.Name, metav1.GetOptions{}))
}

// patch patches an object as an account, with the same kind of patch as the writer.
func patch(ctx context.Context, as *world.Account, cm *corev1.ConfigMap, body string) error {
	return world.ErrorOf(as.Client.CoreV1().ConfigMaps(cm.Namespace).Patch(ctx, cm.Name, apitypes.StrategicMergePatchType,
		[]byte(body), metav1.PatchOptions{FieldManager: annotation.FieldManager}))
}

// dryRun makes the API server check an object without storing it.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// asks returns annotations that request a key, plus one annotation, which may replace the request.
func asks(name, value string) map[string]string {
	return map[string]string{annotation.DefaultKey: "a=x.example.com", name: value}
}

// try creates a ConfigMap as a dry run.
func try(ctx context.Context, api corev1client.ConfigMapInterface, annotations map[string]string) error {
	return world.ErrorOf(api.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-", Annotations: annotations},
	}, dryRun))
}

// rule returns the permission to use verbs on a resource.
// beForbidden matches a denial by a policy whose message contains text.
func beForbidden(text string) types.GomegaMatcher {
	return And(MatchError(apierrors.IsForbidden, "is forbidden"), MatchError(ContainSubstring(text)))
}

const (
	chart   = "../../chart"
	release = "curl-me-that"
)

// render returns the objects from some templates of the chart.
func render(ctx context.Context, namespace string, templates []string, set ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	return suitetest.Must(manifest.Render(ctx, manifest.Chart{
		Dir: chart, Release: release, Namespace: namespace, Templates: templates,
		Set: append(set, "networkPolicy.enabled=false"),
	}))
}

// within limits the bindings of policies to one namespace, because other suites use the API server too.
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

// install creates objects until the end of the spec.
func install(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	applier := suitetest.Must(controlplane.NewApplier(env.Cluster.Config, manifest.Manager))
	Expect(applier.Apply(ctx, "", objects...)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(manifest.Delete(ctx, applier, "", objects)).To(Succeed()) })
}

// spaced returns a name, followed by the value surrounded by each Unicode space.
func spaced(name, value string) []any {
	all := []any{name}
	for _, space := range "\t\n\v\f\r \u0085\u00a0\u1680" +
		"\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000" {
		all = append(all, string(space)+value+string(space))
	}
	return all
}
