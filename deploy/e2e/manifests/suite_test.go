// Package manifests checks the rendered chart against a real API server, the Pod Security Standards
// and the programs that it starts.
//
// It does not use kubeconform, which needs JSON schemas. The API server already has them: a dry run with field
// validation decodes strictly and validates more than any schema. Custom resources of KEDA and the Prometheus
// operator are checked in the same way, with their definitions in testdata/crds.yaml.
//
// It also compares the dashboard, the alerts and the runbooks with the metrics. Promtool fires each alert.
package manifests_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestManifests(t *testing.T) { suitetest.Run(t, "Manifests") }

const (
	chart = "../../chart"
	// namespace is the release's namespace in the rendered chart.
	namespace = "curl-me-that"
)

var (
	cluster *apiServer
	// rendered has the rendered objects by the name of the values or the manifest.
	rendered map[string][]object
)

var _ = BeforeSuite(func(ctx SpecContext) {
	rendered = map[string][]object{}
	files := suitetest.Must(filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml")))
	Expect(files).To(HaveLen(5))
	for _, file := range files {
		rendered[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = template(ctx, file)
	}
	folder := suitetest.Must(manifest.Manifests(ctx, "dev"))
	for _, name := range []string{installed, small, watchers, sidecars} {
		text := suitetest.Must(os.ReadFile(filepath.Join(folder, name)))
		rendered[name] = parse(text)
	}
	if !kubetest.HasMutatingPolicies(GinkgoTB(), kubetest.Config(GinkgoTB())) {
		for name, objects := range rendered {
			rendered[name] = slices.DeleteFunc(objects, func(o object) bool {
				return strings.HasPrefix(o.GetKind(), "MutatingAdmissionPolicy")
			})
		}
	}
	cluster = connect(ctx)
})

// Manifests rendered from the chart, by file name.
const (
	installed = "install.yaml"
	small     = "install-small.yaml"
	watchers  = "watchers.yaml"
	sidecars  = "sidecars.yaml"
)

type object = *unstructured.Unstructured

// additional returns table entries for the manifests that are applied in addition to install.yaml.
func additional() []TableEntry {
	return []TableEntry{Entry(watchers, watchers), Entry(sidecars, sidecars)}
}

// values returns table entries for all ways to render the chart, and more.
func values(more ...TableEntry) []TableEntry {
	entries := []TableEntry{}
	for _, name := range []string{
		"default", "ha", "namespaced", "byo-nats", "keeper",
		installed, small,
	} {
		entries = append(entries, Entry(name, name))
	}
	return append(entries, more...)
}

// render renders the chart without looking up the API server. Later flags override earlier ones.
func render(ctx context.Context, flags ...string) ([]object, error) {
	return manifest.Render(ctx, manifest.Chart{
		Dir: chart, Release: namespace, Namespace: namespace,
		Flags: append([]string{"--set-json", `networkPolicy.apiServer.cidrs=["10.96.0.1/32"]`}, flags...),
	})
}

// template renders the chart with a values file.
func template(ctx context.Context, file string, flags ...string) []object {
	GinkgoHelper()
	return suitetest.Must(render(ctx, append([]string{"--values", file}, flags...)...))
}

func parse(text []byte) []object {
	GinkgoHelper()
	return suitetest.Must(controlplane.Decode(text))
}

// podTemplates returns the pod templates in objects, by the name of the object.
func podTemplates(objects []object) map[string]corev1.PodTemplateSpec {
	GinkgoHelper()
	pods := map[string]corev1.PodTemplateSpec{}
	for _, o := range objects {
		name := o.GetKind() + "/" + o.GetName()
		switch o.GetKind() {
		case "Deployment":
			pods[name] = convert[appsv1.Deployment](o).Spec.Template
		case "StatefulSet":
			pods[name] = convert[appsv1.StatefulSet](o).Spec.Template
		case "Job":
			pods[name] = convert[batchv1.Job](o).Spec.Template
		case "Pod":
			pod := convert[corev1.Pod](o)
			pods[name] = corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		case "DaemonSet", "ReplicaSet", "CronJob", "ReplicationController":
			Fail("the suite does not know the pods of a " + o.GetKind())
		}
	}
	return pods
}

func convert[T any](o object) T {
	GinkgoHelper()
	var typed T
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true)).To(Succeed())
	return typed
}

// eventually is how long to wait for the API server to know the custom resources.
const eventually = time.Minute

// apiServer is a real API server. said has the warnings of its responses.
type apiServer struct {
	*controlplane.Applier
	said *gbytes.Buffer
}

// connect uses the cluster of KUBECONFIG. It creates the namespaces and custom resource definitions for the
// rendered objects, and waits until the API server knows all their kinds.
func connect(ctx context.Context) *apiServer {
	GinkgoHelper()
	path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	Expect(path).NotTo(BeEmpty(), "set KUBECONFIG, or run `make test-manifests`")
	config := suitetest.Must(clientcmd.BuildConfigFromFlags("", path))
	config.QPS = -1
	s := &apiServer{said: gbytes.NewBuffer()}
	config.WarningHandler = rest.NewWarningWriter(s.said, rest.WarningWriterOptions{})
	s.Applier = suitetest.Must(controlplane.NewApplier(config, "manifests"))
	for _, name := range []string{namespace, "team-a", "team-b"} {
		Expect(s.Apply(ctx, "", made("Namespace", "", name))).To(Succeed())
	}
	// In a complete cluster, a controller creates this account, which pods need.
	Expect(s.Apply(ctx, "", made("ServiceAccount", namespace, "default"))).To(Succeed())
	Expect(s.Apply(ctx, "", definitions()...)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		s.Applier = suitetest.Must(controlplane.NewApplier(config, "manifests"))
		for _, o := range slices.Concat(slices.Collect(maps.Values(rendered))...) {
			g.Expect(s.Resource("", o)).Error().NotTo(HaveOccurred())
		}
	}).WithTimeout(eventually).Should(Succeed())
	return s
}

// made returns an object of the core API that only has a name.
func made(kind, namespace, name string) object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// dryRun creates an object as a dry run and returns the API server's error or warnings.
func (a *apiServer) dryRun(ctx context.Context, o object) (warnings string, err error) {
	Expect(a.said.Clear()).To(Succeed())
	err = a.apply(ctx, o, metav1.DryRunAll)
	return string(a.said.Contents()), err
}

// apply works like `kubectl apply --server-side --validate=strict`.
func (a *apiServer) apply(ctx context.Context, o object, dryRun ...string) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	resource, err := a.Resource("", o)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: "manifests", Force: new(true), DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}

// definitions returns the custom resource definitions that the chart may render.
func definitions() []object {
	GinkgoHelper()
	return parse(suitetest.Must(os.ReadFile("testdata/crds.yaml")))
}
