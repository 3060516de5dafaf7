package acceptance_test

import (
	"encoding/pem"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// certificate is that of an authority, in PEM.
var certificate = func() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}()

// goodBodies meet the rules of the recipes, by key.
var goodBodies = map[string]string{
	"ca.pem": certificate + certificate, "node-exporter.json": `{"panels":[1]}`, "etcd.yaml": "# comment\ngroups: []",
	"default.tmpl": `{{ define "__alertmanager" }}Alertmanager{{ end }}`, "cloudflare-v4": "192.0.2.0/24\n198.51.100.0/22",
	"cloudflare-v6": "2001:db8::/32\n", "github.json": `{"hooks":["192.0.2.0/24"]}`,
	"google.json": `{"keys":[{"kid":"a"}]}`,
	"drop.txt":    "; comment\n192.0.2.0/24 ; SBL1\n", "settings.yaml": "a: b",
}

// recipe reads a recipe and points its URLs to the origin, with the same paths. It returns the body of each
// key.
func recipe(w *world.World, file string) (object *corev1.ConfigMap, bodies map[string]string) {
	GinkgoHelper()
	text := suitetest.Must(os.ReadFile(file))
	object, bodies = &corev1.ConfigMap{}, map[string]string{}
	Expect(yaml.UnmarshalStrict(text, object)).To(Succeed(), file)
	grammar := suitetest.Must(annotation.New(annotation.Defaults()))
	request, err := grammar.Parse(object.Annotations)
	Expect(err).NotTo(HaveOccurred(), file)
	asks := ""
	for _, pair := range request.Pairs {
		address, err := url.Parse(pair.URL)
		Expect(err).NotTo(HaveOccurred(), file)
		bodies[pair.Key] = goodBodies[pair.Key]
		asks += pair.Key + "=" + w.Origin.Page(address.Path).Says(bodies[pair.Key]).URL() + "\n"
	}
	object.Namespace, object.Annotations[annotation.DefaultKey] = w.Namespace, asks
	return object, bodies
}

var _ = It("The recipes are accepted by the API server, and filled", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	files := suitetest.Must(filepath.Glob("../../samples/recipes/*.yaml"))
	Expect(len(files)).To(BeNumerically(">=", 10))
	for _, file := range files {
		object, bodies := recipe(w, file)
		Expect(object.Annotations).To(HaveKey("x-kv8s.io/curl-expect"), file)
		_, err := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Create(ctx, object,
			metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred(), file)
		cm := w.Create(ctx, object.Name, func(o *corev1.ConfigMap) { o.ObjectMeta = object.ObjectMeta })
		for key, body := range bodies {
			cm.EventuallyHasData(ctx, key, body)
		}
	}
})
