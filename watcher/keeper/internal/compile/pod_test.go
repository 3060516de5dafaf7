package compile_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
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
func count(p *corev1.Pod) compile.Count {
	read := compile.ReadPod(p)
	if read == nil {
		return compile.Count{}
	}
	errors := &compile.Plan{
		Watcher: types.NamespacedName{Name: "errors"}, Generation: 4,
		Sidecar: &compile.Sidecar{Container: &corev1.Container{Name: "watch"}},
	}
	return compile.CountPods(errors, []*compile.Pod{read}, now)
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
	Entry("is ready after running long enough", pod(runs(compile.RecoveryTime+time.Second), crashed(9, time.Second)),
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
		Expect(got.Again).To(Equal(compile.RecoveryTime - time.Minute))
		Expect(got.Worst.Name).To(Equal("web"))
	})

	DescribeTable("is ignored", func(p *corev1.Pod) {
		Expect(compile.ReadPod(p)).To(BeNil())
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
		read := compile.ReadPod(pod(func(p *corev1.Pod,
			_ *corev1.ContainerStatus,
		) {
			p.Annotations[watchv1.InjectedAnnotation] = text
		}))
		Expect(read.Watchers()).To(HaveLen(16))
		Expect(read.Watchers()).To(ContainElement(types.NamespacedName{Namespace: "team-a", Name: "w14"}))
	})
})
