package manifests_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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
func (s *apiServer) dryRun(ctx context.Context, o object) (warnings string, err error) {
	Expect(s.said.Clear()).To(Succeed())
	err = s.apply(ctx, o, metav1.DryRunAll)
	return string(s.said.Contents()), err
}

// apply works like `kubectl apply --server-side --validate=strict`.
func (s *apiServer) apply(ctx context.Context, o object, dryRun ...string) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	resource, err := s.Resource("", o)
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
	files := suitetest.Must(filepath.Glob("testdata/crds/*.yaml"))
	Expect(files).NotTo(BeEmpty())
	var all []object
	for _, file := range files {
		text := suitetest.Must(os.ReadFile(file))
		all = append(all, parse(text)...)
	}
	return all
}
