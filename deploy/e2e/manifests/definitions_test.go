package manifests_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

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
