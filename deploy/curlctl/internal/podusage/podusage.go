// Package podusage finds the containers that use a ConfigMap, and decides whether they can see its newest content.
package podusage

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// KubeletDelay is the maximum delay until a kubelet updates the files of a volume: its default sync period of a
// minute with 50 % jitter, and the delay of its watch.
const KubeletDelay = 2 * time.Minute

// Way is how a container uses a ConfigMap.
type Way string

// The ways.
const (
	// Volume: files that the kubelet updates.
	Volume Way = "volume"
	// Projected: the same, in a projected volume.
	Projected Way = "projected"
	// SubPath: files mounted one by one, which are never updated.
	SubPath Way = "subPath"
	// Env: variables, read when the container starts.
	Env Way = "env"
	// EnvFrom: the same, for all keys.
	EnvFrom Way = "envFrom"
	// Sidecar: the Watcher that owns the ConfigMap injected the container.
	Sidecar Way = "sidecar"
)

// updates reports whether the kubelet updates the content.
func (w Way) updates() bool { return w == Volume || w == Projected }

// Newest says whether a container can see the newest content.
type Newest string

// The values, worst first.
const (
	// No: the container started before the change, and reads the content only at its start.
	No Newest = "no"
	// Unknown: the container started so soon after the change that the kubelet may have had the previous
	// content, or it is not known how the container reads the content.
	Unknown Newest = "unknown"
	// Soon: the kubelet updates its files within KubeletDelay.
	Soon Newest = "soon"
	// AtStart: the container has not started yet.
	AtStart Newest = "at-start"
	// Yes: the container started with the content, or its files were updated.
	Yes Newest = "yes"
	// Ended: the container has terminated.
	Ended Newest = "ended"
)

// order is from best to worst. The worst way of a container decides.
var order = []Newest{Ended, Yes, AtStart, Soon, Unknown, No}

// Usage is a container that uses a ConfigMap.
type Usage struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Ways are the ways of use. Keys is empty if the container uses all keys.
	Ways []Way    `json:"ways"`
	Keys []string `json:"keys,omitempty"`
	// Started is zero if the container does not run.
	Started time.Time `json:"started,omitzero"`
	// Changed is the last change of its keys, if it is known.
	Changed time.Time `json:"changed,omitzero"`
	Newest  Newest    `json:"newest"`
}

// ConfigMap is the ConfigMap to search for.
type ConfigMap struct {
	Name string
	// Watcher that owns it (nil: none).
	Watcher *watchv1.Watcher
	Changes Changes
}

// use is one use of a ConfigMap by a container.
type use struct {
	way Way
	// keys (empty: all).
	keys []string
}

// In returns the containers of a pod that use a ConfigMap.
func In(pod *corev1.Pod, cm ConfigMap, now time.Time) []Usage {
	volumes, statuses := volumesOf(pod, cm.Name), statusesOf(pod)
	var found []Usage
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) // in the order of their start
	for _, e := range pod.Spec.EphemeralContainers {
		containers = append(containers, corev1.Container(e.EphemeralContainerCommon))
	}
	for i := range containers {
		c := &containers[i]
		uses := append(fromEnv(c, cm.Name), fromVolumes(c.VolumeMounts, volumes)...)
		if cm.isSidecar(pod, c) {
			uses = append([]use{{way: Sidecar}}, uses...)
		}
		if len(uses) > 0 {
			one := Usage{Pod: pod.Name, Container: c.Name, Newest: Ended}
			one.add(statuses[c.Name], uses, cm.Changes, now)
			found = append(found, one)
		}
	}
	return found
}

// isSidecar reports whether the Watcher injected a container.
func (cm ConfigMap) isSidecar(pod *corev1.Pod, c *corev1.Container) bool {
	w := cm.Watcher
	if w == nil || w.Spec.Container == nil || c.Name != w.Spec.Container.Name || c.RestartPolicy == nil {
		return false
	}
	for part := range strings.SplitSeq(pod.Annotations[watchv1.InjectedAnnotation], ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(part), "="); name == w.Name {
			return true
		}
	}
	return false
}

// statusesOf returns the statuses of all containers of a pod by name, which is unique. A container has none
// before it is created.
func statusesOf(pod *corev1.Pod) map[string]*corev1.ContainerStatus {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses)
	byName := map[string]*corev1.ContainerStatus{}
	for i := range statuses {
		byName[statuses[i].Name] = &statuses[i]
	}
	return byName
}

// volumesOf returns the volumes of a pod that hold a ConfigMap, by name.
func volumesOf(pod *corev1.Pod, name string) map[string]use {
	found := map[string]use{}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name == name {
			found[v.Name] = use{Volume, items(v.ConfigMap.Items)}
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil && source.ConfigMap.Name == name {
				found[v.Name] = use{Projected, items(source.ConfigMap.Items)}
			}
		}
	}
	return found
}

func items(paths []corev1.KeyToPath) []string {
	var keys []string
	for _, path := range paths {
		keys = append(keys, path.Key)
	}
	return keys
}

// fromVolumes returns the uses through volume mounts.
func fromVolumes(mounts []corev1.VolumeMount, volumes map[string]use) []use {
	var uses []use
	for _, mount := range mounts {
		u, found := volumes[mount.Name]
		if !found {
			continue
		}
		if mount.SubPath != "" || mount.SubPathExpr != "" {
			u.way = SubPath
		}
		uses = append(uses, u)
	}
	return uses
}

// fromEnv returns the uses through environment variables.
func fromEnv(c *corev1.Container, name string) []use {
	var uses []use
	var keys []string
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == name {
			keys = append(keys, e.ValueFrom.ConfigMapKeyRef.Key)
		}
	}
	if len(keys) > 0 {
		uses = append(uses, use{Env, keys})
	}
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef != nil && e.ConfigMapRef.Name == name {
			uses = append(uses, use{way: EnvFrom})
		}
	}
	return uses
}

// add combines the uses of a container.
func (u *Usage) add(status *corev1.ContainerStatus, uses []use, changes Changes, now time.Time) {
	all := false
	for _, of := range uses {
		if !slices.Contains(u.Ways, of.way) {
			u.Ways = append(u.Ways, of.way)
		}
		if of.way == Sidecar && len(uses) > 1 {
			continue // the other ways decide
		}
		at := changes.Of(of.keys)
		u.Changed = later(u.Changed, at)
		all = all || len(of.keys) == 0
		u.Keys = append(u.Keys, of.keys...)
		if newest := seen(of.way, status, at, now); slices.Index(order, newest) > slices.Index(order, u.Newest) {
			u.Newest = newest
		}
	}
	if slices.Sort(u.Keys); all {
		u.Keys = nil
	}
	u.Keys = slices.Compact(u.Keys)
	if status != nil && status.State.Running != nil {
		u.Started = status.State.Running.StartedAt.Time
	}
}

// seen says whether a container can see a change made at a time.
func seen(way Way, s *corev1.ContainerStatus, changed, now time.Time) Newest {
	switch {
	case s != nil && s.State.Terminated != nil:
		return Ended
	case s == nil || s.State.Running == nil:
		return AtStart
	case way == Sidecar || changed.IsZero():
		return Unknown
	}
	started := s.State.Running.StartedAt.Time
	switch {
	case !started.Before(changed.Add(KubeletDelay)):
		return Yes
	case way.updates() && now.Before(changed.Add(KubeletDelay)):
		return Soon
	case way.updates():
		return Yes
	case started.Before(changed):
		return No
	}
	return Unknown
}
