package apply

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// An apply is bound to the planned version and never changes or removes a key.
func TestApplyOnlyAddsKeys(t *testing.T) {
	unrecorded := func() *plan.Object {
		return &plan.Object{
			Metadata: keystate.Metadata{UID: "u"}, Freshness: plan.Live, ResourceVersion: "7",
			Values: map[string]string{"theirs": "digest"},
		}
	}
	added := func() plan.Plan {
		return plan.Plan{
			Values: map[string]*plan.Value{"k": {Body: []byte("<a>")}, "b": {Body: []byte{0xff}, Binary: true}}, SetStatus: true,
			Status: "{}",
		}
	}
	for name, tt := range map[string]struct {
		change func(*plan.Object, *plan.Plan)
		want   bool
	}{
		"new keys":        {func(*plan.Object, *plan.Plan) {}, true},
		"an existing key": {func(_ *plan.Object, p *plan.Plan) { p.Values["theirs"] = &plan.Value{} }, false},
		"a removed key":   {func(_ *plan.Object, p *plan.Plan) { p.Values["gone"] = nil }, false},
		"values not read": {func(o *plan.Object, _ *plan.Plan) { o.Values = nil }, false},
		"not live":        {func(o *plan.Object, _ *plan.Plan) { o.Freshness = plan.FromPatch }, false},
		"no value":        {func(_ *plan.Object, p *plan.Plan) { p.Values = nil }, false},
		"no status":       {func(_ *plan.Object, p *plan.Plan) { p.Status = "" }, false},
	} {
		o, p := unrecorded(), added()
		tt.change(o, &p)
		NewWithT(t).Expect(beginsRecord(o, p)).To(Equal(tt.want), name)
	}
	body, err := encodeApply(types.NamespacedName{Namespace: "ns", Name: "cm"}, unrecorded(), added())
	const want = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm","namespace":"ns","uid":"u",` +
		`"resourceVersion":"7",` +
		`"annotations":{"x-kv8s.io/curl-status":"{}"}},"data":{"k":"<a>"},"binaryData":{"b":"/w=="}}` + "\n"
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(string(body)).To(Equal(want))
}
