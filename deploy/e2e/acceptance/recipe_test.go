package acceptance_test

import (
	"net/url"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// recipe reads a recipe whose URLs lead to the origin of a world, with the same paths. It returns
// the body of each key.
func recipe(w *world.World, file string) (object *corev1.ConfigMap, bodies map[string]string) {
	GinkgoHelper()
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	object, bodies = &corev1.ConfigMap{}, map[string]string{}
	Expect(yaml.UnmarshalStrict(text, object)).To(Succeed(), file)
	grammar, err := annotation.New(annotation.Defaults())
	Expect(err).NotTo(HaveOccurred())
	request, err := grammar.Parse(object.Annotations)
	Expect(err).NotTo(HaveOccurred(), file)
	asks := ""
	for _, pair := range request.Pairs {
		address, err := url.Parse(pair.URL)
		Expect(err).NotTo(HaveOccurred(), file)
		bodies[pair.Key] = "the body of " + pair.Key
		asks += pair.Key + "=" + w.Origin.Page(address.Path).Says(bodies[pair.Key]).URL() + "\n"
	}
	object.Namespace, object.Annotations[annotation.DefaultKey] = w.Namespace, asks
	return object, bodies
}

var _ = Describe("The recipes", func() {
	It("are accepted by the API server, and filled", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		files, err := filepath.Glob("../../samples/recipes/*.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(len(files)).To(BeNumerically(">=", 10))
		for _, file := range files {
			object, bodies := recipe(w, file)
			_, err := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Create(ctx, object,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
			Expect(err).NotTo(HaveOccurred(), file)
			cm := w.Create(ctx, object.Name, func(o *corev1.ConfigMap) { o.ObjectMeta = object.ObjectMeta })
			for key, body := range bodies {
				cm.EventuallyHasData(ctx, key, body)
			}
		}
	})
})
