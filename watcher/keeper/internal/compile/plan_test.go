package compile_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

func TestCompile(t *testing.T) { suitetest.Run(t, "Compile") }

func compiler() *compile.Compiler {
	GinkgoHelper()
	grammar, err := annotation.New(annotation.Defaults())
	Expect(err).NotTo(HaveOccurred())
	return compile.NewCompiler(grammar)
}

// watcher returns a Watcher with two sources and a static key, after a change.
func watcher(change ...func(*watchv1.Watcher)) *watchv1.Watcher {
	w := &watchv1.Watcher{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "rules", UID: "uid", Generation: 2},
		Spec: watchv1.WatcherSpec{
			Interval:   "10m",
			ConfigData: map[string]string{"LEVEL": "warn"},
			Sources: []watchv1.Source{
				{Key: "b", URL: "b.example.com"},
				{Key: "a", URL: "https://a.example.com/x?y=z", SHA256: sum},
			},
		},
	}
	for _, c := range change {
		c(w)
	}
	return w
}

// compiled compiles a Watcher after a change.
func compiled(change ...func(*watchv1.Watcher)) *compile.Plan {
	GinkgoHelper()
	return compiler().Compile(watcher(change...))
}

// applied returns the body that is applied to a version of the ConfigMap.
func applied(version uint64, change ...func(*watchv1.Watcher)) *corev1.ConfigMap {
	GinkgoHelper()
	body, hash, err := compiler().Body(watcher(change...), version)
	Expect(err).NotTo(HaveOccurred())
	Expect(hash).To(Equal(compiled(change...).Hash))
	cm := &corev1.ConfigMap{}
	Expect(json.Unmarshal(body, cm)).To(Succeed())
	return cm
}

var _ = Describe("Compiling a Watcher", func() {
	ruled := func(text string) func(*watchv1.Watcher) {
		return func(w *watchv1.Watcher) {
			w.Spec.Sources[0].Expect = []watchv1.Rule{{Rule: "size(body) > 0"}, {Rule: text, Message: "no rules"}}
			w.Spec.Sources[0].Select, w.Spec.Sources[0].Interval = "json.rules", "1m"
		}
	}

	It("plans rules, selections and intervals of sources", func() {
		asked := applied(0, ruled("size(json.rules) > 0")).Annotations
		Expect(asked).To(HaveKeyWithValue("x-kv8s.io/curl-expect", "b=size(body) > 0\nb=size(json.rules) > 0"))
		Expect(asked).To(HaveKeyWithValue("x-kv8s.io/curl-select", "b=json.rules"))
		Expect(asked).To(HaveKeyWithValue("x-kv8s.io/curl-refresh", "10m b=1m"))
		p := compiled(ruled("size(json.rules) > 0"))
		Expect(p.Problem).To(BeNil())
		Expect(p.Sources[0].Rules).To(BeEmpty())
		Expect(p.Sources[1].Rules).NotTo(BeEmpty())
		Expect(p.Expect["b"][1].Message).To(Equal("no rules"))
	})

	It("rejects an expression that is not boolean", func() {
		p := compiled(ruled("size(json.rules) + 1"))
		Expect(p.Problem).To(BeNil(), "compiled in the goroutine of the watch")
		Expect(p.Checked().Problem).To(Equal(&compile.Problem{
			Reason:  watchv1.ReasonInvalidExpression,
			Message: "annotation curl-expect, rule 2 of key b: expected a boolean, column 18",
		}))
	})

	It("plans the annotations that the watcher reads", func() {
		p := compiled()
		Expect(p.Problem).To(BeNil())
		asked := applied(0).Annotations
		Expect(asked).To(HaveKeyWithValue("x-kv8s.io/curl-me-that", "a=https://a.example.com/x?y=z b=b.example.com"))
		Expect(asked).To(HaveKeyWithValue("x-kv8s.io/curl-refresh", "10m"))
		Expect(asked).To(HaveKeyWithValue("x-kv8s.io/curl-sha256", "a="+sum))
		Expect(asked).To(HaveKeyWithValue(watchv1.AppliedAnnotation, p.Hash.String()))
		Expect(asked).To(HaveLen(4))
		Expect(p.Sources).To(Equal([]keystate.Spec{
			{Key: "a", URL: "https://a.example.com/x?y=z", SHA256: sum, Refresh: 10 * time.Minute},
			{Key: "b", URL: "https://b.example.com", Refresh: 10 * time.Minute},
		}))
	})

	It("labels the ConfigMap with its Watcher", func() {
		created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		p := compiled(func(w *watchv1.Watcher) {
			w.CreationTimestamp = metav1.NewTime(created)
			w.Annotations = map[string]string{"x-kv8s.io/curl-now": "1"}
			w.Spec.Suspend, w.Spec.Target.Name = true, "other"
			w.Spec.ConfigBinaryData = map[string][]byte{"logo": {1, 2}}
			w.Spec.Container = &corev1.Container{Name: "reloader"}
			w.Spec.Volume = &corev1.Volume{Name: "cache"}
		})
		Expect(*p).To(And(
			HaveField("Watcher", types.NamespacedName{Namespace: "team-a", Name: "rules"}), HaveField("UID", types.UID("uid")),
			HaveField("Generation", int64(2)), HaveField("Created", created),
			HaveField("Target", types.NamespacedName{Namespace: "team-a", Name: "other"}),
			HaveField("Suspended", true), HaveField("CurlNow", "1"), HaveField("Static", 2),
			HaveField("Sidecar",
				HaveValue(Equal(compile.Sidecar{
					Container: &corev1.Container{Name: "reloader"},
					Volume:    &corev1.Volume{Name: "cache"},
				}))),
		))
		Expect(p.StaticSHA256).NotTo(Equal(compiled().StaticSHA256))
		Expect(compiled()).To(HaveValue(HaveField("Sidecar", BeNil())))
		cm := applied(0)
		Expect(cm.Namespace + "/" + cm.Name).To(Equal("team-a/rules-config"))
	})

	It("plans an unusual but valid source", func() {
		p := compiled(func(w *watchv1.Watcher) { w.Spec.Sources[0].URL = "https://b.example.com/x,c=1?d=http://e" })
		Expect(p.Problem).To(BeNil())
		Expect(p.Sources).To(HaveLen(2))
	})

	It("plans the same object for any order of its sources", func() {
		Expect(applied(0, func(w *watchv1.Watcher) { slices.Reverse(w.Spec.Sources) })).To(Equal(applied(0)))
	})

	It("sets no request annotations without sources", func() {
		none := func(w *watchv1.Watcher) { w.Spec.Sources = nil }
		Expect(compiled(none).Problem).To(BeNil())
		Expect(applied(0, none).Annotations).To(HaveLen(1))
	})

	It("sets the version that was read, and an owner unless the ConfigMap is retained", func() {
		Expect(applied(0).OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("uid"))))
		Expect(applied(0).ResourceVersion).To(Equal("1"), "which no object has")
		retained := applied(7, func(w *watchv1.Watcher) { w.Spec.Target.DeletionPolicy = watchv1.Retain })
		Expect(retained.OwnerReferences).To(BeEmpty())
		Expect(retained.ResourceVersion).To(Equal("7"))
	})

	It("applies static data without keeping it in the plan", func() {
		cm := applied(0, func(w *watchv1.Watcher) { w.Spec.ConfigBinaryData = map[string][]byte{"logo": {1, 2}} })
		Expect(cm.Data).To(Equal(map[string]string{"LEVEL": "warn"}))
		Expect(cm.BinaryData).To(Equal(map[string][]byte{"logo": {1, 2}}))
		Expect(fmt.Sprintf("%+v", *compiled())).NotTo(ContainSubstring("warn"))
	})
})

var _ = DescribeTable("A change of a Watcher changes the applied object", func(change func(*watchv1.Watcher),
	fieldsToo bool,
) {
	before, after := compiled(), compiled(change)
	Expect(after.Hash).NotTo(Equal(before.Hash))
	if fieldsToo {
		Expect(after.Fields).NotTo(Equal(before.Fields))
	} else {
		Expect(after.Fields).To(Equal(before.Fields))
	}
},
	Entry("a value of the same field", func(w *watchv1.Watcher) { w.Spec.ConfigData["LEVEL"] = "info" }, false),
	Entry("another static key", func(w *watchv1.Watcher) { w.Spec.ConfigData["MORE"] = "" }, true),
	Entry("another binary key", func(w *watchv1.Watcher) { w.Spec.ConfigBinaryData = map[string][]byte{"logo": {1}} },
		true),
	Entry("a static key that becomes binary", func(w *watchv1.Watcher) {
		w.Spec.ConfigData, w.Spec.ConfigBinaryData = nil, map[string][]byte{"LEVEL": []byte("warn")}
	}, true),
	Entry("another URL", func(w *watchv1.Watcher) { w.Spec.Sources[0].URL = "c.example.com" }, false),
	Entry("suspended", func(w *watchv1.Watcher) { w.Spec.Suspend = true }, true),
	Entry("fetched now", func(w *watchv1.Watcher) { w.Annotations = map[string]string{"x-kv8s.io/curl-now": "1"} }, true),
	Entry("retained", func(w *watchv1.Watcher) { w.Spec.Target.DeletionPolicy = watchv1.Retain }, true),
)

var _ = DescribeTable("A Watcher that cannot be applied has a reason and a sentence",
	func(change func(*watchv1.Watcher), reason, message string) {
		p := compiled(change)
		Expect(p.Problem).To(HaveValue(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
	},
	Entry("more static data than a ConfigMap holds", func(w *watchv1.Watcher) {
		w.Spec.ConfigData = map[string]string{"a": strings.Repeat("x", 1<<20), "b": "y"}
	}, watchv1.ReasonTooLarge, "the static data has 1048577 bytes, but a ConfigMap holds at most 1048576"),
	Entry("more than that together with binary data", func(w *watchv1.Watcher) {
		w.Spec.ConfigData, w.Spec.ConfigBinaryData = map[string]string{"a": strings.Repeat("x",
			1<<20)}, map[string][]byte{"b": {1}}
	}, watchv1.ReasonTooLarge, "the static data has 1048577 bytes"),
	Entry("an interval that the grammar refuses", func(w *watchv1.Watcher) { w.Spec.Interval = "soon" },
		watchv1.ReasonInvalidSource, "curl-refresh"),
	Entry("a URL that the grammar refuses", func(w *watchv1.Watcher) { w.Spec.Sources[0].URL = "https://" },
		watchv1.ReasonInvalidSource, "b"),
)

var _ = It("A hash is parsed only from valid text", func() {
	hash := compiled().Hash
	Expect(compile.ParseHash(hash.String())).To(Equal(hash))
	for _, text := range []string{"", "none", hash.String() + "00", hash.String() + "0", hash.String()[2:]} {
		Expect(compile.ParseHash(text)).To(BeZero(), text)
	}
})

var _ = It("A Watcher with as much static data as a ConfigMap holds is applied", func() {
	Expect(compiled(func(w *watchv1.Watcher) {
		w.Spec.ConfigData = map[string]string{"a": strings.Repeat("x", 1<<19)}
		w.Spec.ConfigBinaryData = map[string][]byte{"b": make([]byte, 1<<19)}
	}).Problem).To(BeNil())
})
