package watchers_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = Describe("The samples of Watchers", func() {
	It("are accepted, and listed with their columns", func(ctx SpecContext) {
		namespace := env.Cluster.Namespace(ctx)
		readme := suitetest.Must(os.ReadFile("../../samples/README.md"))
		files := suitetest.Must(filepath.Glob("../../samples/watchers/*.yaml"))
		Expect(len(files)).To(BeNumerically(">=", 3))
		for _, file := range files {
			text := suitetest.Must(os.ReadFile(file))
			Expect(string(text)).To(HavePrefix("# "), file)
			Expect(string(readme)).To(ContainSubstring("(watchers/"+filepath.Base(file)+")"), file)
			_, err := api.Resource(watchv1.Resource()).Namespace(namespace).Create(ctx, manifest(string(text)),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			Expect(err).NotTo(HaveOccurred(), file)
		}
	})
})
