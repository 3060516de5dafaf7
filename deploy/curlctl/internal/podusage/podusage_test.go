package podusage_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/proto/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestPodUsage(t *testing.T) { suitetest.Run(t, "PodUsage") }

var (
	now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	// changed is the last change of key a. Key b changed ten hours before now.
	changed = now.Add(-time.Hour)
	cm      = func() podusage.ConfigMap {
		return podusage.ConfigMap{Name: "rules", Changes: podusage.ChangesOf(written(
			entry("kubectl", "a", changed), entry("helm", "b", now.Add(-10*time.Hour)), entry("helm", "", now),
		), nil)}
	}
)

// written returns a ConfigMap with managedFields.
func written(entries ...metav1.ManagedFieldsEntry) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "01234567-89ab", ManagedFields: entries}}
}

// entry returns an entry of managedFields for a key (empty: for an annotation).
func entry(manager, key string, at time.Time) metav1.ManagedFieldsEntry {
	fields := `{"f:data":{".":{},"f:` + key + `":{}}}`
	if key == "" {
		fields = `{"f:metadata":{"f:annotations":{"f:x":{}}}}`
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(fields)}
}

// running returns a pod whose container "app" has been running since a time.
func running(since time.Time, change ...func(*corev1.Pod, *corev1.Container)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)},
			}},
		}},
	}
	for _, c := range change {
		c(p, &p.Spec.Containers[0])
	}
	return p
}

func env(key string) func(*corev1.Pod, *corev1.Container) {
	return func(_ *corev1.Pod, c *corev1.Container) {
		c.Env = append(c.Env, corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "rules"},
				Key:                  key,
			},
		}})
	}
}

func envFrom(_ *corev1.Pod, c *corev1.Container) {
	rules := corev1.LocalObjectReference{Name: "rules"}
	c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: rules}}}
}

func mounted(source corev1.VolumeSource, subPath string) func(*corev1.Pod, *corev1.Container) {
	return func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "rules", VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "rules", SubPath: subPath})
	}
}

func volume(keys ...string) corev1.VolumeSource {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "rules"}}
	for _, key := range keys {
		source.Items = append(source.Items, corev1.KeyToPath{Key: key})
	}
	return corev1.VolumeSource{ConfigMap: source}
}

func projected() corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "rules"}}},
	}}}
}

func state(s corev1.ContainerState) func(*corev1.Pod, *corev1.Container) {
	return func(p *corev1.Pod, _ *corev1.Container) { p.Status.ContainerStatuses[0].State = s }
}

var (
	before = changed.Add(-time.Second)
	after  = changed.Add(podusage.KubeletDelay)
	during = after.Add(-time.Second)
)

var _ = DescribeTable("A container uses a ConfigMap", func(pod *corev1.Pod, at time.Time, want ...any) {
	found := podusage.In(pod, cm(), at)
	Expect(found).To(HaveLen(1))
	got := []any{found[0].Newest}
	for _, way := range found[0].Ways {
		got = append(got, way)
	}
	Expect(got).To(Equal(want))
},
	Entry("in a variable that it read before the change", running(before, env("a")), now, podusage.No, podusage.Env),
	Entry("in a variable that it read after the change", running(after, env("a")), now, podusage.Yes, podusage.Env),
	Entry("in a variable that it read while the kubelet may have been behind", running(during, env("a")), now,
		podusage.Unknown, podusage.Env),
	Entry("in a variable of a key that has not changed since", running(before, env("b")), now, podusage.Yes, podusage.Env),
	Entry("in variables of all keys", running(before, envFrom), now, podusage.No, podusage.EnvFrom),
	Entry("in a volume", running(before, mounted(volume(), "")), now, podusage.Yes, podusage.Volume),
	Entry("in a volume that the kubelet may not have updated yet", running(before, mounted(volume(), "")), during,
		podusage.Soon, podusage.Volume),
	Entry("in a volume without the changed key", running(before, mounted(volume("b"), "")), during,
		podusage.Yes, podusage.Volume),
	Entry("in a projected volume", running(before, mounted(projected(), "")), now, podusage.Yes, podusage.Projected),
	Entry("in one file of a volume, which is never updated", running(before, mounted(volume(), "a")), now, podusage.No,
		podusage.SubPath),
	Entry("in one file that was mounted after the change", running(after, mounted(projected(), "a")), now, podusage.Yes,
		podusage.SubPath),
	Entry("in several ways, and the worst one counts", running(before, mounted(volume(), ""), env("a")), now,
		podusage.No, podusage.Env, podusage.Volume),
	Entry("and has not started yet", running(before, env("a"),
		state(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}})), now, podusage.AtStart, podusage.Env),
	Entry("and has terminated", running(before, env("a"),
		state(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})), now, podusage.Ended, podusage.Env),
)

var _ = Describe("The usage of a ConfigMap by a pod", func() {
	It("excludes a container that does not mount the volume of the ConfigMap", func() {
		pod := running(before, func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Volumes = []corev1.Volume{{Name: "rules", VolumeSource: volume()}}
		})
		Expect(podusage.In(pod, cm(), now)).To(BeEmpty())
		Expect(podusage.In(running(before, env("a")), podusage.ConfigMap{Name: "other"}, now)).To(BeEmpty())
	})

	It("includes the sidecar of the Watcher, whatever it reads", func() {
		pod := running(before, func(p *corev1.Pod, _ *corev1.Container) {
			p.Annotations = map[string]string{watchv1.InjectedAnnotation: "other=1,errors=3"}
			p.Spec.InitContainers = []corev1.Container{{Name: "watch", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name:  "watch",
				State: p.Status.ContainerStatuses[0].State,
			}}
		})
		owned := cm()
		Expect(podusage.In(pod, owned, now)).To(BeEmpty())
		owned.Watcher = &watchv1.Watcher{
			ObjectMeta: metav1.ObjectMeta{Name: "errors"},
			Spec:       watchv1.WatcherSpec{Container: &corev1.Container{Name: "watch"}},
		}
		Expect(podusage.In(pod, owned, now)).To(ConsistOf(And(
			HaveField("Ways", []podusage.Way{podusage.Sidecar}), HaveField("Newest", podusage.Unknown))))
		env("a")(pod, &pod.Spec.InitContainers[0])
		Expect(podusage.In(pod, owned, now)).To(ConsistOf(And(
			HaveField("Ways", []podusage.Way{podusage.Sidecar, podusage.Env}), HaveField("Keys", []string{"a"}),
			HaveField("Newest", podusage.No))))
		owned.Watcher.Name = "another"
		Expect(podusage.In(pod, owned, now)).To(ConsistOf(HaveField("Ways", []podusage.Way{podusage.Env})))
	})
})

var _ = Describe("The last change", func() {
	It("of a fetched key comes from the status annotation, unless somebody else wrote the key since", func() {
		m := written(entry("curl-me-that", "a", now), entry("curl-me-that", "b", now))
		m.Annotations = map[string]string{"x-kv8s.io/curl-status": `{"a":{"sha256":"` + digest +
			`","fetchedAt":"2026-11-22T01:00:00Z","object":"01234567"},` +
			`"b":{"sha256":"` + digest + `","fetchedAt":"2026-11-22T01:00:00Z","object":"another0"}}`}
		c := podusage.ChangesOf(m, nil)
		Expect(c.Of([]string{"a"})).To(BeTemporally("==", time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)))
		Expect(c.Of([]string{"b"})).To(BeTemporally("==", now), "the entry was copied from another object")
		m.ManagedFields = append(m.ManagedFields, entry("kubectl", "a", now.Add(-time.Minute)))
		Expect(podusage.ChangesOf(m, nil).Of([]string{"a"})).To(BeTemporally("==", now.Add(-time.Minute)))
	})

	It("of a key that the keeper wrote is limited by the status of the Watcher", func() {
		m := written(entry(watchv1.FieldManager, "a", now))
		w := &watchv1.Watcher{Status: watchv1.WatcherStatus{ChangedAt: new(metav1.NewTime(changed))}}
		Expect(podusage.ChangesOf(m, w).Of([]string{"a"})).To(BeTemporally("==", changed))
		Expect(podusage.ChangesOf(m, nil).Of(nil)).To(BeTemporally("==", now))
		Expect(podusage.ChangesOf(written(), w).Of(nil)).To(BeTemporally("==", changed), "a key was removed")
	})

	It("of a key without a record is unknown", func() {
		Expect(podusage.ChangesOf(written(), nil).Of(nil).IsZero()).To(BeTrue())
		unknown := podusage.In(running(before, env("a")), podusage.ConfigMap{Name: "rules"}, now)
		Expect(unknown).To(ConsistOf(HaveField("Newest", podusage.Unknown)))
	})
})

const digest = "abababababababababababababababababababababababababababababababab"
