package docs_test

import (
	"os"
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

const samples = "../../../samples"

var _ = Describe("The samples", func() {
	var files []string
	BeforeEach(func() {
		files = suitetest.Must(filepath.Glob(filepath.Join(samples, "*.yaml")))
		Expect(len(files)).To(BeNumerically(">", 5))
	})

	It("have no unknown fields and are accepted by the API server", func(ctx SpecContext) {
		client := suitetest.Must(kubernetes.NewForConfig(kubetest.Config(GinkgoTB())))
		for _, file := range files {
			err := client.CoreV1().RESTClient().Post().Namespace("default").Resource("configmaps").
				Param("dryRun", "All").Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/yaml").Body(text(file)).Do(ctx).Error()
			Expect(err).NotTo(HaveOccurred(), file)
		}
	})

	It("have annotations that match their names", func() {
		grammar := suitetest.Must(annotation.New(annotation.Defaults()))
		used := map[string]bool{}
		for _, file := range files {
			var object corev1.ConfigMap
			Expect(yaml.UnmarshalStrict(text(file), &object)).To(Succeed(), file)
			for name := range object.Annotations {
				used[name] = true
			}
			request, err := grammar.Parse(object.Annotations)
			if strings.Contains(file, "invalid") {
				Expect(err).To(MatchError(ContainSubstring("does not match expected format key=url")), file)
				continue
			}
			Expect(err).NotTo(HaveOccurred(), file)
			Expect(request.Pairs).NotTo(BeEmpty(), file)
		}
		Expect(used).To(And(HaveKey(annotation.DefaultKey), HaveKey(annotation.LegacyKey)))
		for _, name := range annotation.OptionNames() {
			Expect(used).To(HaveKey("x-kv8s.io/" + name))
		}
	})

	It("start with a comment and are listed in the README", func() {
		readme := string(text(filepath.Join(samples, "README.md")))
		for _, file := range files {
			Expect(string(text(file))).To(HavePrefix("# "), file)
			Expect(readme).To(ContainSubstring("(" + filepath.Base(file) + ")"))
		}
	})
})

// text returns the content of a file.
func text(file string) []byte {
	GinkgoHelper()
	return suitetest.Must(os.ReadFile(file))
}
