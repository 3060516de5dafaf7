package manifests_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// eventually is how long to wait for the API server.
const eventually = time.Minute

// apiServer is a real API server.
type apiServer struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	said   *warnings
}

// warnings collects the warnings of the API server.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// connect uses the cluster of KUBECONFIG and creates the namespaces and custom resource definitions
// that the rendered objects need.
func connect(ctx context.Context) *apiServer {
	GinkgoHelper()
	path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	Expect(path).NotTo(BeEmpty(), "set KUBECONFIG, or run `make test-manifests`")
	config := suitetest.Must(clientcmd.BuildConfigFromFlags("", path))
	config.QPS = -1
	s := &apiServer{said: &warnings{}}
	config.WarningHandler = s.said
	s.client = suitetest.Must(dynamic.NewForConfig(config))
	s.mapper = mapper(config)

	for _, name := range []string{namespace, "team-a", "team-b"} {
		s.ensure(ctx, made("Namespace", "", name))
	}
	// In a whole cluster, a controller creates the account. Pods need it.
	s.ensure(ctx, made("ServiceAccount", namespace, "default"))
	for _, crd := range definitions() {
		s.ensure(ctx, crd)
		Eventually(ctx, func() error { return s.serves(crd) }).WithTimeout(eventually).Should(Succeed())
	}
	return s
}

func mapper(config *rest.Config) *restmapper.DeferredDiscoveryRESTMapper {
	GinkgoHelper()
	client := suitetest.Must(discovery.NewDiscoveryClientForConfig(config))
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
}

// resource returns the client for an object.
func (s *apiServer) resource(o object) dynamic.ResourceInterface {
	GinkgoHelper()
	kind := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	Expect(err).NotTo(HaveOccurred(), "%s %s", o.GetKind(), o.GetName())
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		Expect(o.GetNamespace()).To(BeEmpty(), "%s %s is of the whole cluster", o.GetKind(), o.GetName())
		return s.client.Resource(mapping.Resource)
	}
	Expect(o.GetNamespace()).NotTo(BeEmpty(), "%s %s names no namespace", o.GetKind(), o.GetName())
	return s.client.Resource(mapping.Resource).Namespace(o.GetNamespace())
}

// made returns an object of the core API with only a name.
func made(kind, namespace, name string) object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func (s *apiServer) ensure(ctx context.Context, o object) {
	GinkgoHelper()
	_, err := s.resource(o).Create(ctx, o, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// dryRun creates an object as a dry run and returns the API server's error or warnings.
func (s *apiServer) dryRun(ctx context.Context, o object) (warnings []string, err error) {
	s.said.take()
	err = s.apply(ctx, o, metav1.DryRunAll)
	return s.said.take(), err
}

// apply does the same as `kubectl apply --server-side --validate=strict`.
func (s *apiServer) apply(ctx context.Context, o object, dryRun ...string) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	_, err = s.resource(o).Patch(ctx, o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: "manifests", Force: &force, DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}

func (s *apiServer) get(ctx context.Context, o object) (object, error) {
	return s.resource(o).Get(ctx, o.GetName(), metav1.GetOptions{})
}

// remove deletes objects except for namespaces, which need a controller to go away.
func (s *apiServer) remove(ctx context.Context, objects []object) {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			continue
		}
		err := s.resource(o).Delete(ctx, o.GetName(),
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
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

// serves returns an error until the API server serves a custom resource.
func (s *apiServer) serves(crd object) error {
	s.mapper.Reset()
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	_, err := s.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	return err
}
