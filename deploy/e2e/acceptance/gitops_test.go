package acceptance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	It("removes a fetched value, which is fetched again, or keeps it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		filled := 0.0
		for name, t := range map[string]struct {
			removes bool
			request
		}{
			"data-without-keys": {true, request{applied, `{"data":null}`}},
			"mydata-null":       {true, request{applied, `{"data":{"mydata":null}}`}},
			"put":               {true, request{}}, // kubectl replace, a forced Helm upgrade, Replace=true
			"terraform": {true, request{terraform, `[{"op":"remove","path":"/data/mydata"},` +
				`{"op":"remove","path":"/metadata/annotations/x-kv8s.io~1curl-status"}]`}},
			"data-left-out": {false, request{applied, `{"metadata":{"labels":{"version":"2"}}}`}},
			"data-left-out-by-server-side-apply": {false, request{
				types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"version":"2"}}}`,
			}},
			"terraform-and-ignore-changes": {false, request{terraform, `[{"op":"add","path":"/metadata/labels",` +
				`"value":{"version":"2"}}]`}},
		} {
			page, cm := w.Fill(ctx, name, "fetched")
			filled++
			// The watcher compares with the filled object only if it has seen it.
			Eventually(ctx, func() float64 { return w.Watcher().Metric(ctx, "curlmethat_watcher_keys", `state="ok"`) }).
				Should(Equal(filled))
			t.send(ctx, w, cm)
			if t.removes {
				cm.EventuallyHasEvents(ctx, "Drifted")
			}
			cm.EventuallyHasData(ctx, "mydata", "fetched")
			w.EventuallyQuiet(ctx)
			Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "fetched"}), name)
			if t.removes {
				Expect(page.Hits()).To(Equal(2), name)
			} else {
				Expect(page.Hits()).To(Equal(1), name)
				cm.HasEvents(ctx)
			}
		}
	})

	// deploy/docs/gitops.md promises this to those with another value in Git.
	It("conflicts by server-side apply with another value of a fetched key", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "applied", "fetched")
		Expect(world.ErrorOf(w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Patch(ctx, cm.Name, types.ApplyPatchType,
			[]byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"mydata":"from Git"}}`),
			metav1.PatchOptions{FieldManager: "tool"}))).To(MatchError(apierrors.IsConflict, "is a conflict"))
	})

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
