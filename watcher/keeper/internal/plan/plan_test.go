package plan_test

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

func TestPlan(t *testing.T) { suitetest.Run(t, "Plan") }

func compiler() *plan.Compiler {
	GinkgoHelper()
	grammar, err := annotation.New(annotation.Defaults())
	Expect(err).NotTo(HaveOccurred())
	return plan.New(grammar)
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
func compiled(change ...func(*watchv1.Watcher)) *plan.Plan {
	GinkgoHelper()
	return compiler().Compile(watcher(change...))
}

// applied returns the body that is applied to a version of the ConfigMap.
func applied(version uint64, change ...func(*watchv1.Watcher)) *corev1.ConfigMap {
	GinkgoHelper()
	body, digest, err := compiler().Body(watcher(change...), version)
	Expect(err).NotTo(HaveOccurred())
	Expect(digest).To(Equal(compiled(change...).Digest))
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
		Expect(p.Checked().Problem).To(Equal(&plan.Problem{
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
		Expect(asked).To(HaveKeyWithValue(watchv1.AppliedAnnotation, p.Digest.String()))
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
			HaveField("Suspended", true), HaveField("Now", "1"), HaveField("Static", 2),
			HaveField("Sidecar",
				HaveValue(Equal(plan.Sidecar{
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
	Expect(after.Digest).NotTo(Equal(before.Digest))
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

var _ = It("A digest is parsed only from valid text", func() {
	digest := compiled().Digest
	Expect(plan.ParseDigest(digest.String())).To(Equal(digest))
	for _, text := range []string{"", "none", digest.String() + "00", digest.String() + "0", digest.String()[2:]} {
		Expect(plan.ParseDigest(text)).To(BeZero(), text)
	}
})

var _ = It("A Watcher with as much static data as a ConfigMap holds is applied", func() {
	Expect(compiled(func(w *watchv1.Watcher) {
		w.Spec.ConfigData = map[string]string{"a": strings.Repeat("x", 1<<19)}
		w.Spec.ConfigBinaryData = map[string][]byte{"b": make([]byte, 1<<19)}
	}).Problem).To(BeNil())
})

var _ = It("adds the message of the rule that a body does not meet", func() {
	const url = "https://rules.example.com/"
	t := compiler().Target(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		annotation.StatusKey: `{"k":{"url":"` + url + `","error":"ContentRejected","rule":2}}`,
	}}})
	rules := []watchv1.Rule{{Rule: "true", Message: "other"}, {Rule: "false", Message: "no rules yet"}}
	s := plan.Compute(plan.Input{
		Plan:   &plan.Plan{Sources: []keystate.Spec{{Key: "k", URL: url}}, Expect: map[string][]watchv1.Rule{"k": rules}},
		Target: t, Applied: true, Now: time.Now(),
	})
	Expect(s.Conditions).To(ContainElement(And(
		HaveField("Type", watchv1.ConditionFresh), HaveField("Message", ContainSubstring("ContentRejected (no rules yet)")))))
})

var _ = It("A key that another installation fetched is not shown as fetched", func() {
	const url = "https://rules.example.com/"
	t := compiler().Target(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		annotation.DefaultKey: "k=" + url, "other.io/curl": "k=" + url,
		annotation.StatusKey: `{"k":{"url":"` + url + `","annotation":"other.io/curl","sha256":"` +
			strings.Repeat("a", 64) + `"}}`,
	}}})
	s := plan.Compute(plan.Input{
		Plan:   &plan.Plan{Sources: []keystate.Spec{{Key: "k", URL: url}}},
		Target: t, Applied: true, Now: time.Now(),
	})
	Expect(s.Sources).To(ConsistOf(And(HaveField("State", watchv1.Failing), HaveField("Reason", "KeyExists"),
		HaveField("SHA256", BeEmpty()))))
})

var _ = DescribeTable("A status whose ConfigMap has a manually edited reason is accepted by the API server",
	func(written, reason string) {
		const url = "https://rules.example.com/"
		t := compiler().Target(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			annotation.StatusKey: `{"k":{"url":"` + url + `","error":"` + written + `"}}`,
		}}})
		s := plan.Compute(plan.Input{
			Plan:   &plan.Plan{Sources: []keystate.Spec{{Key: "k", URL: url}}},
			Target: t, Applied: true, Now: time.Now(),
		})
		Expect(validation.ValidateConditions(s.Conditions, field.NewPath("status"))).To(BeEmpty())
		Expect(s.Sources).To(ConsistOf(HaveField("Reason", reason)))
		Expect(s.Conditions).To(ContainElement(And(HaveField("Type", watchv1.ConditionFresh), HaveField("Reason", reason))))
	},
	Entry("a reason of the writer", "Timeout", "Timeout"),
	Entry("words", "no reason, <b>really</b>", "Unknown"),
	Entry("too long", strings.Repeat("x", 2000), "Unknown"),
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// pod returns a pod with the sidecar "watch" of Watcher errors, generation 3.
func pod(change ...func(*corev1.Pod, *corev1.ContainerStatus)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "web",
			Annotations: map[string]string{watchv1.InjectedAnnotation: "errors=3"},
		},
		Spec: corev1.PodSpec{InitContainers: []corev1.Container{
			{Name: "migrate"}, {Name: "watch", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "migrate", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1,
				Reason:   "Error",
			}}, RestartCount: 5},
			{Name: "watch"},
		}},
	}
	for _, c := range change {
		c(p, &p.Status.InitContainerStatuses[1])
	}
	return p
}

func waits(reason string) func(*corev1.Pod, *corev1.ContainerStatus) {
	return func(_ *corev1.Pod, s *corev1.ContainerStatus) {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
}

// runs makes the sidecar run and be ready for some time.
func runs(since time.Duration) func(*corev1.Pod, *corev1.ContainerStatus) {
	return func(_ *corev1.Pod, s *corev1.ContainerStatus) {
		s.State.Running, s.Ready = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-since))}, true
	}
}

func unready(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Ready = false }

// crashed makes the sidecar have crashed some times, the last time after running for a while.
func crashed(times int32, after time.Duration) func(*corev1.Pod, *corev1.ContainerStatus) {
	return func(_ *corev1.Pod, s *corev1.ContainerStatus) {
		s.RestartCount = times
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", StartedAt: metav1.NewTime(now.Add(-time.Hour - after)),
			FinishedAt: metav1.NewTime(now.Add(-time.Hour)),
		}
	}
}

func ended(code int32, restarts int32) func(*corev1.Pod, *corev1.ContainerStatus) {
	return func(_ *corev1.Pod, s *corev1.ContainerStatus) {
		s.State.Terminated, s.RestartCount = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}, restarts
	}
}

// count counts one pod for Watcher errors of generation 4.
func count(p *corev1.Pod) plan.Count {
	read := plan.ReadPod(p)
	if read == nil {
		return plan.Count{}
	}
	errors := &plan.Plan{
		Watcher: types.NamespacedName{Name: "errors"}, Generation: 4,
		Sidecar: &plan.Sidecar{Container: &corev1.Container{Name: "watch"}},
	}
	return plan.CountPods(errors, []*plan.Pod{read}, now)
}

var _ = DescribeTable("A sidecar", func(p *corev1.Pod, want string) {
	got := count(p)
	Expect(got.Injected).To(Equal(int64(1)))
	seen := got.Pods[types.NamespacedName{Namespace: "team-a", Name: "web"}]
	Expect(strings.TrimSpace(fmt.Sprint(seen.State, " ", seen.Reason))).To(Equal(want))
},
	Entry("is starting before the kubelet reports it",
		pod(func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.InitContainerStatuses = nil }), "starting"),
	Entry("is starting while it waits for other containers", pod(waits("PodInitializing")), "starting"),
	Entry("is starting while its image is pulled", pod(waits("ContainerCreating")), "starting"),
	Entry("fails if its image cannot be pulled", pod(waits("ImagePullBackOff")), "failing ImagePullBackOff"),
	Entry("fails if its key is missing", pod(waits("CreateContainerConfigError")), "failing CreateContainerConfigError"),
	Entry("fails while it waits for its next start", pod(waits("CrashLoopBackOff"), crashed(3, time.Second)),
		"failing CrashLoopBackOff"),
	Entry("fails with a reason that the kubelet cannot have written", pod(waits("a text\nof a tenant")), "failing Error"),
	Entry("is ready if it is running and ready", pod(runs(time.Minute)), "ready"),
	Entry("is starting if it is running and not ready", pod(runs(time.Minute), unready), "starting"),
	Entry("is ready again after one crash", pod(runs(time.Minute), crashed(1, time.Second)), "ready"),
	Entry("fails while it is running in a crash loop", pod(runs(time.Minute), crashed(2, time.Second)), "failing Error"),
	Entry("is ready after running long enough", pod(runs(plan.RecoveryTime+time.Second), crashed(9, time.Second)),
		"ready"),
	Entry("is ready if it ran long enough before", pod(runs(time.Minute), crashed(9, time.Hour)), "ready"),
	Entry("is starting again after it ended once", pod(ended(1, 0)), "starting"),
	Entry("fails if it ends again", pod(ended(1, 1)), "failing Error"),
	Entry("does not fail if it ends with its pod", pod(ended(143, 7),
		func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.DeletionTimestamp = new(metav1.NewTime(now)) }), "starting"),
)

var _ = Describe("A pod", func() {
	It("counts as current if its sidecar has the newest generation", func() {
		got := count(pod(runs(time.Minute)))
		Expect(got.PodsStatus).To(Equal(watchv1.PodsStatus{Injected: 1, Ready: 1}), "of generation 3, not of 4")
		got = count(pod(runs(time.Minute), func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			p.Annotations[watchv1.InjectedAnnotation] = "other=1, errors=4"
		}))
		Expect(got.PodsStatus).To(Equal(watchv1.PodsStatus{Injected: 1, Current: 1, Ready: 1}))
	})

	It("is counted again when its sidecar has run long enough", func() {
		got := count(pod(runs(time.Minute), crashed(2, time.Second)))
		Expect(got.Again).To(Equal(plan.RecoveryTime - time.Minute))
		Expect(got.Worst.Name).To(Equal("web"))
	})

	DescribeTable("is ignored", func(p *corev1.Pod) {
		Expect(plan.ReadPod(p)).To(BeNil())
	},
		Entry("if it has succeeded",
			pod(func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.Phase = corev1.PodSucceeded })),
		Entry("if it has failed", pod(func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.Phase = corev1.PodFailed })),
		Entry("without the annotation", pod(func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Annotations = nil })),
		Entry("with an invalid annotation", pod(func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			p.Annotations[watchv1.InjectedAnnotation] = "errors, other=x"
		})),
	)

	It("has a limited number of Watchers, once each", func() {
		text := strings.Repeat("errors=1,", 100)
		for i := range 100 {
			text += fmt.Sprintf("w%d=1,", i)
		}
		read := plan.ReadPod(pod(func(p *corev1.Pod,
			_ *corev1.ContainerStatus,
		) {
			p.Annotations[watchv1.InjectedAnnotation] = text
		}))
		Expect(read.Watchers()).To(HaveLen(16))
		Expect(read.Watchers()).To(ContainElement(types.NamespacedName{Namespace: "team-a", Name: "w14"}))
	})
})
