package keeper

import (
	"fmt"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
)

// heldBytes is the maximum memory per Watcher and its ConfigMap. Half of keeper's 64 MiB with 5,000
// Watchers is file pages and garbage.
const heldBytes = 4 << 10

// ready returns a ready Watcher with one source and 10 KiB of static data.
func ready(namespace string, i int) *watchv1.Watcher {
	w := &watchv1.Watcher{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("watcher-%05d", i),
			UID:             types.UID(fmt.Sprintf("b0c3a5ba-0000-4000-8000-%012d", i)),
			ResourceVersion: fmt.Sprint(1000 + i), Generation: 1, CreationTimestamp: metav1.Now(),
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager:  "kubectl",
				FieldsV1: metav1.NewFieldsV1(strings.Repeat("{}", 500)),
			}},
		},
		Spec: watchv1.WatcherSpec{
			Interval: "10m", ConfigData: map[string]string{"LEVEL": strings.Repeat("warn", 2560)},
			Sources: []watchv1.Source{{Key: "rules.json", URL: fmt.Sprintf("https://rules.example.com/v2/%d?team=a", i)}},
		},
	}
	w.Status.ConfigMapName, w.Status.Fetched, w.Status.ContentSHA256 = w.ConfigMapName(), "1/1", fmt.Sprintf("%064d", i)
	w.Status.Sources = []watchv1.SourceStatus{{
		Key: "rules.json", State: watchv1.Good, SHA256: fmt.Sprintf("%064d", i),
		Size: 256,
	}}
	for _, kind := range []string{watchv1.ConditionReady, watchv1.ConditionFresh} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: kind,
			Message:            fmt.Sprint("ConfigMap watcher-", i, "-config holds 1 fetched and 1 static keys"),
			ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
		})
	}
	return w
}

// configMap returns the metadata of a Watcher's ConfigMap.
func configMap(w *watchv1.Watcher) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.ConfigMapName(), UID: w.UID + "-config", ResourceVersion: w.ResourceVersion,
		Labels: map[string]string{watchv1.WatcherLabel: w.Name},
		Annotations: map[string]string{
			annotation.DefaultKey: "rules.json=" + w.Spec.Sources[0].URL,
			annotation.StatusKey: fmt.Sprintf(
				`{"rules.json":{"url":%q,"sha256":%q,"size":256,"changedAt":"2026-11-23T00:00:00Z",`+
					`"fence":"1767323045000.7"}}`,
				w.Spec.Sources[0].URL, w.Status.Sources[0].SHA256),
		},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w, watchv1.GroupVersion().WithKind(watchv1.Kind))},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: watchv1.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:LEVEL":{}},"f:metadata":{"f:labels":{"f:watch.x-kv8s.io/watcher":{}}}}`),
		}},
	}}
}

// inUse returns the size of the live heap in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // interned strings go with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

var _ = Describe("With many Watchers, keeper", func() {
	It("needs a few KiB each, however much static data they have", func(ctx SpecContext) {
		r := newRig(ctx)
		const count = 5000
		before := inUse()
		for i := range count {
			w := ready(r.namespace, i)
			r.watchers.Put(w)
			r.targets.Put(configMap(w))
		}
		Expect(r.watchers.Len()).To(Equal(count))
		Expect(r.targets.Len()).To(Equal(count))
		Expect((inUse()-before)/count).To(BeNumerically("<", heldBytes), "bytes of each")
		runtime.KeepAlive(r)
	})

	It("queues only the oldest of all that name the same ConfigMap", func(ctx SpecContext) {
		r := newRig(ctx)
		q := queue.New(queueName, r.metrics.queue)
		r.queue.Store(q)
		queued := func() (names []string) {
			for q.Len() > 0 {
				name, _ := q.Get()
				q.Done(name)
				names = append(names, name.Name)
			}
			return names
		}
		named := func(i int, target string, change int) []string {
			w := ready(r.namespace, i)
			w.Spec.Target.Name, w.ResourceVersion = target, fmt.Sprint(change*1000+i)
			w.CreationTimestamp = metav1.Unix(int64(i), 0)
			r.watchers.Put(w)
			return queued()
		}
		for i := 1; i < 100; i++ {
			Expect(named(i, "same", 1)).To(HaveLen(min(i, 2)), "itself and the oldest")
			Expect(named(i, "same", 2)).To(HaveLen(1), "itself, whose status has changed")
		}
		Expect(named(1, "other", 3)).To(ConsistOf("watcher-00001", "watcher-00002"), "the next oldest")
		config := configMap(ready(r.namespace, 2))
		config.Name = "same"
		r.targets.Put(config)
		Expect(queued()).To(HaveLen(98), "a new ConfigMap")
		config.ResourceVersion = "9999"
		r.targets.Put(config)
		Expect(queued()).To(ConsistOf("watcher-00002"), "the owner of a ConfigMap that changes")
		Expect(named(1, "absent", 4)).To(ConsistOf("watcher-00001"))
		r.targetChanged(types.NamespacedName{Namespace: r.namespace, Name: "absent"}, true)
		Expect(queued()).To(BeEmpty(), "a ConfigMap that was deleted before its change is handled")
	})
})

// hostileBytes is the maximum memory of an object that a tenant fills, as in deploy/docs/security.md.
const hostileBytes = 64 << 10

var _ = DescribeTable("A hostile object takes little memory of keeper:", func(
	ctx SpecContext, limit int, change func(r *rig, i int),
) {
	r := newRig(ctx)
	const count = 10
	before := inUse()
	for i := range count {
		change(r, i)
	}
	each := (inUse() - before) / count
	AddReportEntry("bytes", each)
	Expect(each).To(BeNumerically("<", limit), "bytes of each")
	Expect(r.watchers.Len() + r.targets.Len() + r.pods.Len()).To(Equal(count))
	runtime.KeepAlive(r)
},
	Entry("a ConfigMap with long owners", hostileBytes, func(r *rig, i int) {
		m := configMap(ready(r.namespace, i))
		m.OwnerReferences[0].Name, m.OwnerReferences[0].Kind = huge(), huge()
		m.OwnerReferences[0].UID, m.OwnerReferences[0].APIVersion = types.UID(huge()), huge()
		r.targets.Put(m)
	}),
	// 256 KiB, and what the race detector adds.
	Entry("a ConfigMap with a long status", 272<<10, func(r *rig, i int) {
		m := configMap(ready(r.namespace, i))
		var entries []string
		for k := range 257 {
			entries = append(entries, fmt.Sprintf(`"%s%d":{"url":"%s","message":"%[1]s","error":"x"}`,
				strings.Repeat("k", 240), k, strings.Repeat("u", 240)))
		}
		m.Annotations[annotation.StatusKey] = "{" + strings.Join(entries, ",") + "}"
		r.targets.Put(m)
	}),
	Entry("a ConfigMap with long managedFields and annotations", hostileBytes, func(r *rig, i int) {
		m := configMap(ready(r.namespace, i))
		m.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{"f:` + huge() + `":{}}}`)
		m.Annotations[watchv1.AppliedAnnotation] = huge()
		r.targets.Put(m)
	}),
	Entry("a pod with long names of Watchers", hostileBytes, func(r *rig, i int) {
		r.pods.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1",
			Annotations: map[string]string{watchv1.InjectedAnnotation: fmt.Sprintf("%s%d=1,a=1", huge(), i)},
		}})
	}),
	Entry("a Watcher with a long curl-now", hostileBytes, func(r *rig, i int) {
		w := ready(r.namespace, i)
		w.Annotations = map[string]string{"x-kv8s.io/curl-now": huge()}
		r.watchers.Put(w)
	}),
	Entry("a Watcher with a long name of a key", hostileBytes, func(r *rig, i int) {
		w := ready(r.namespace, i)
		w.Spec.Sources[0].Key, w.Spec.Sources[0].Expect = huge(), []watchv1.Rule{{Rule: "size(body) > 1", Message: huge()}}
		r.watchers.Put(w)
	}),
	Entry("a Watcher with a large sidecar", hostileBytes, func(r *rig, i int) {
		w := ready(r.namespace, i)
		w.Spec.Container = &corev1.Container{Name: "c", Image: "i", Args: []string{huge()}}
		r.watchers.Put(w)
	}),
)

// huge returns a text of 200 KB, not shared with another.
func huge() string { return strings.Repeat("x", 200_000) }

// own is the prefix of keeper's metrics.
const own = "curlmethat_keeper_"

// elsewhere lists metrics with specs elsewhere.
var elsewhere = []string{
	own + "sidecars", own + "sidecars_outdated", own + "leader", own + "credentials_problems",
	own + "credentials_timestamp_seconds",
}
