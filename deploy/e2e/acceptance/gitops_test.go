package acceptance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// request is a request of a tool that applies a manifest. A PUT has no type.
type request struct {
	kind types.PatchType
	body string
}

// send sends a request, as the tool does.
func (r request) send(ctx SpecContext, w *world.World, cm *world.ConfigMap) {
	GinkgoHelper()
	maps := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace)
	if r.kind == "" {
		manifest := cm.Get(ctx)
		manifest.ObjectMeta = metav1.ObjectMeta{Name: cm.Name, Annotations: map[string]string{
			annotation.DefaultKey: manifest.Annotations[annotation.DefaultKey],
		}}
		manifest.Data = nil
		w.History.BySpec(suitetest.Must(maps.Update(ctx, manifest, metav1.UpdateOptions{FieldManager: "tool"})))
		return
	}
	w.History.BySpec(suitetest.Must(maps.Patch(ctx, cm.Name, r.kind, []byte(r.body),
		metav1.PatchOptions{FieldManager: "tool"})))
}

const (
	applied   = types.StrategicMergePatchType // by kubectl apply, Helm 3 and Argo CD
	terraform = types.JSONPatchType
)

var _ = Describe("A tool that applies a manifest again and again", func() {
	DescribeTable("removes a fetched value, which is fetched again, with", func(ctx SpecContext, r request) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "applied", "fetched")
		r.send(ctx, w, cm)
		cm.EventuallyHasEvents(ctx, "Drifted")
		cm.EventuallyHasData(ctx, "mydata", "fetched")
		Expect(page.Hits()).To(Equal(2))
	},
		Entry("data: without keys", request{applied, `{"data":null}`}),
		Entry("mydata: null", request{applied, `{"data":{"mydata":null}}`}),
		Entry("a PUT (kubectl replace, a forced Helm upgrade, Replace=true)", request{}),
		Entry("Terraform, without ignore_changes", request{terraform, `[{"op":"remove","path":"/data/mydata"},` +
			`{"op":"remove","path":"/metadata/annotations/x-kv8s.io~1curl-status"}]`}),
	)

	DescribeTable("keeps a fetched value, with", func(ctx SpecContext, r request) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "applied", "fetched")
		r.send(ctx, w, cm)
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "fetched"}))
		Expect(cm.Reasons(ctx)).To(BeEmpty())
		Expect(page.Hits()).To(Equal(1))
	},
		Entry("data left out", request{applied, `{"metadata":{"labels":{"version":"2"}}}`}),
		Entry("data left out, by server-side apply", request{
			types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"version":"2"}}}`,
		}),
		Entry("Terraform and ignore_changes", request{terraform, `[{"op":"add","path":"/metadata/labels",` +
			`"value":{"version":"2"}}]`}),
	)

	It("owns a key that is null in a server-side apply", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/null").Says("fetched")
		cm := w.Create(ctx, "null", func(o *corev1.ConfigMap) { o.Labels = map[string]string{"version": "1"} })
		request{types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"` +
			annotation.DefaultKey + `":"mydata=` + page.URL() + `"}},"data":{"mydata":null}}`}.send(ctx, w, cm)
		cm.EventuallyHasEvents(ctx, "KeyExists")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", ""))
		Expect(page.Hits()).To(BeZero())
	})
})
