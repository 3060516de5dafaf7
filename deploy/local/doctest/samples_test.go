package doctest_test

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const samples = root + "/deploy/samples"

var _ = Describe("The samples", func() {
	var manifests []string
	BeforeEach(func() {
		for _, file := range []string{"annotations.yaml", "config-map-valid.yaml", "config-map-invalid.yaml"} {
			manifests = append(manifests, strings.Split(string(text(filepath.Join(samples, file))), "\n---\n")...)
		}
		Expect(manifests).To(HaveEach(HavePrefix("# ")))
	})

	It("have no unknown fields and are accepted by the API server", func(ctx SpecContext) {
		client := suitetest.Must(kubernetes.NewForConfig(kubetest.Config(GinkgoTB())))
		for _, manifest := range manifests {
			err := client.CoreV1().RESTClient().Post().Namespace("default").Resource("configmaps").
				Param("dryRun", "All").Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).Do(ctx).Error()
			Expect(err).NotTo(HaveOccurred(), manifest)
		}
	})

	It("use every annotation, as its parser reads it", func() {
		grammar := suitetest.Must(annotation.New(annotation.Defaults()))
		used := map[string]bool{}
		for _, manifest := range manifests {
			var object corev1.ConfigMap
			Expect(yaml.UnmarshalStrict([]byte(manifest), &object)).To(Succeed(), manifest)
			for name := range object.Annotations {
				used[name] = true
			}
			request, err := grammar.Parse(object.Annotations)
			if strings.Contains(object.Name, "invalid") {
				Expect(err).To(MatchError(ContainSubstring("does not match expected format key=url")), manifest)
				continue
			}
			Expect(err).NotTo(HaveOccurred(), manifest)
			Expect(request.Pairs).NotTo(BeEmpty(), manifest)
		}
		Expect(used).To(And(HaveKey(annotation.DefaultKey), HaveKey(annotation.LegacyKey)))
		for _, name := range annotation.OptionNames() {
			Expect(used).To(HaveKey("x-kv8s.io/" + name))
		}
	})
})
