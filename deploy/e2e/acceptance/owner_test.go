package acceptance_test

import (
	"encoding/pem"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is kept until its owner removes it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		cm.EventuallyReports(ctx, "mydata", "KeyExists")
		cm.Put(ctx, "mydata", "theirs as before")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs as before"))
		Expect(page.Hits()).To(BeZero())
		Expect(cm.Writes(ctx)).To(Equal(1), "the status about the existing key")
		Expect(cm.Status(ctx, "mydata").Why().Message).
			To(HavePrefix("key mydata already exists and is not managed by curl-me-that"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
		cm.EventuallyReports(ctx, "mydata", "")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited or removed by hand is repaired each time, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "drift", "as asked", world.Holding("other", "theirs"))
		for i, change := range []func(){
			func() { cm.Put(ctx, "mydata", "changed by hand") },
			func() { cm.Put(ctx, "mydata", "once more") },
			func() { cm.Drop(ctx, "mydata") },
		} {
			change()
			cm.EventuallyHasData(ctx, "mydata", "as asked")
			w.EventuallyQuiet(ctx)
			Expect(cm.Reasons(ctx)).To(And(Not(BeEmpty()), HaveEach("Drifted")))
			Expect(cm.Writes(ctx)).To(Equal(2 + i))
		}
	})

	It("is pruned when its pair is removed, and other keys stay", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "pruned", world.Asking("a="+a.URL()+" b="+b.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")

		cm.Ask(ctx, "b="+b.URL())
		cm.EventuallyLacks(ctx, "a")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"b": "B", "other": "theirs"}))

		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "b")
		w.EventuallyQuiet(ctx)
		left := cm.Get(ctx)
		Expect(left.Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(left.Annotations).NotTo(HaveKey(annotation.StatusKey))
		Expect(b.Hits()).To(Equal(1))
	})
})

// Copies and backups of an object include its status annotation.
var _ = Describe("A copy of a ConfigMap with its status", func() {
	It("is filled and refreshed despite the higher fence of the other cluster", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/copied").Says("now")
		// The other cluster had an older object, whose fence is higher.
		before := status.Status{Keys: map[string]status.Entry{"mydata": {
			URL: page.URL(), SHA256: pipeline.Digest("then"), Size: 4, ChangedAt: time.Now().Add(-time.Hour),
			UIDMark: "another", Fence: status.Fence{Epoch: time.Now().AddDate(1, 0, 0).UnixMilli(), Seq: 1_000_000},
		}}}
		cm := w.Create(ctx, "copied", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "1s"),
			world.Holding("mydata", "then"), world.Annotated(annotation.StatusKey, before.String()))
		cm.EventuallyHasData(ctx, "mydata", "now")
		page.Says("later")
		cm.EventuallyHasData(ctx, "mydata", "later")
		Expect(cm.Status(ctx, "mydata").UIDMark).To(Equal(status.UIDMark(cm.Get(ctx).UID)))
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.HasEvents(ctx)
	})
})

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

var _ = Describe("The recipes", func() {
	It("are accepted by the API server, and filled", func(ctx SpecContext) {
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
})
