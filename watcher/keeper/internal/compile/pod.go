package compile

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
)

const (
	// RecoveryTime is how long a crashed sidecar must run to count as healthy again: the kubelet's maximum
	// back-off. A sidecar in a crash loop therefore stays failing between its starts.
	RecoveryTime = 5 * time.Minute
	// maxWatchers is the maximum number of Watchers per pod. The creator of a pod controls the annotation.
	maxWatchers = 16
)

// State is the state of a sidecar.
type State string

// The states.
const (
	// Starting: it is not running or not ready yet.
	Starting State = "starting"
	// Ready: it is running and ready.
	Ready State = "ready"
	// Failing: it cannot start, or it crashes repeatedly.
	Failing State = "failing"
)

// Pod is the cached part of a pod.
type Pod struct {
	informer.Meta
	// Injected are the Watchers whose sidecars it has.
	Injected []Injection
	// Containers are its sidecars as reported by the kubelet.
	Containers []Container
}

// Injection is one injected sidecar.
type Injection struct {
	// Watcher is the name of a Watcher in the pod's namespace.
	Watcher string
	// Generation is the generation of the Watcher when the pod was created.
	Generation int64
}

// Container is one sidecar as reported by the kubelet.
type Container struct {
	Name string
	// State is the state once Steady has passed.
	State State
	// Reason is the reason of a failure, such as CrashLoopBackOff.
	Reason string
	// Steady is when a crashed sidecar counts as healthy again (zero if it has not crashed recently).
	Steady time.Time
}

// at returns the state of a container at a time.
func (c Container) at(now time.Time) State {
	if c.Steady.After(now) {
		return Failing
	}
	return c.State
}

// Of returns a sidecar by the name of its container. It returns false if there is none (nil), the kubelet has not
// reported it, or the container had another name when the pod was created.
func (p *Pod) Of(s *Sidecar) (Container, bool) {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return s != nil && c.Name == s.Container.Name })
	if i < 0 {
		return Container{}, false
	}
	return p.Containers[i], true
}

// Watchers returns the Watchers whose sidecars a pod has.
func (p *Pod) Watchers() []types.NamespacedName {
	names := make([]types.NamespacedName, len(p.Injected))
	for i, injection := range p.Injected {
		names[i] = types.NamespacedName{Namespace: p.Namespace, Name: injection.Watcher}
	}
	return names
}

// ReadPod returns the cached part of a pod (nil if it has ended or has no sidecar of a Watcher).
func ReadPod(pod *corev1.Pod) *Pod {
	injected := injections(pod.Annotations[watchv1.InjectedAnnotation])
	if len(injected) == 0 || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	p := &Pod{Meta: informer.MetaOf(pod), Injected: injected}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		for k := range pod.Status.InitContainerStatuses {
			if s := &pod.Status.InitContainerStatuses[k]; s.Name == c.Name {
				p.Containers = append(p.Containers, containerOf(s, pod.DeletionTimestamp != nil))
			}
		}
	}
	return p
}

// injections parses the annotation and skips invalid parts.
func injections(text string) []Injection {
	var found []Injection
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		generation, err := strconv.ParseInt(number, 10, 64)
		if err != nil || len(name) > validation.DNS1123SubdomainMaxLength ||
			slices.ContainsFunc(found, func(i Injection) bool { return i.Watcher == name }) {
			continue
		}
		found = append(found, Injection{unique.Make(name).Value(), generation})
		if len(found) == maxWatchers {
			break
		}
	}
	return found
}

// containerOf returns a container as its status shows it. The end of a sidecar is no failure if its pod is deleted.
func containerOf(s *corev1.ContainerStatus, deleted bool) Container {
	c := Container{Name: unique.Make(s.Name).Value(), State: Starting}
	switch now := s.State; {
	case deleted && now.Running == nil:
	case now.Waiting != nil && !starts(now.Waiting.Reason):
		c.State, c.Reason = Failing, reason(now.Waiting.Reason)
	case now.Terminated != nil && now.Terminated.ExitCode != 0 && s.RestartCount > 0:
		c.State, c.Reason = Failing, reason(now.Terminated.Reason)
	case now.Running != nil:
		if s.Ready {
			c.State = Ready
		}
		if last := s.LastTerminationState.Terminated; crashes(s, last) {
			c.Reason, c.Steady = reason(last.Reason), now.Running.StartedAt.Add(RecoveryTime)
		}
	}
	return c
}

// starts reports whether a waiting container is still starting.
func starts(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// crashes reports whether a running container has crashed more than once, and recently.
func crashes(s *corev1.ContainerStatus, last *corev1.ContainerStateTerminated) bool {
	return s.RestartCount > 1 && last != nil && last.ExitCode != 0 &&
		last.FinishedAt.Sub(last.StartedAt.Time) < RecoveryTime
}

// kubeletReason matches the reasons that the kubelet writes.
var kubeletReason = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)

// reason returns a reason if the kubelet may have written it, because others can write pod status too.
func reason(text string) string {
	if kubeletReason.MatchString(text) {
		return unique.Make(text).Value()
	}
	return "Error"
}

// PodState is the state of the sidecar of one pod.
type PodState struct {
	State State
	// Reason is the reason of a failure.
	Reason string
	// Generation is the generation of the Watcher when the pod was created.
	Generation int64
}

// Count has the states of the sidecars of one Watcher.
type Count struct {
	watchv1.PodsStatus
	// Pods has the pods with a sidecar.
	Pods map[types.NamespacedName]PodState
	// Worst is the first pod with a failing sidecar, if any.
	Worst types.NamespacedName
	// Again is the time until the count may change without an event (0: never).
	Again time.Duration
}

// CountPods counts the pods with a sidecar of a Watcher.
func CountPods(p *Plan, pods []*Pod, now time.Time) Count {
	count := Count{Pods: make(map[types.NamespacedName]PodState, len(pods))}
	for _, pod := range pods {
		for _, injection := range pod.Injected {
			if injection.Watcher != p.Watcher.Name {
				continue
			}
			seen := PodState{State: Starting, Generation: injection.Generation}
			if c, found := pod.Of(p.Sidecar); found {
				seen.State = c.at(now)
				if seen.State == Failing {
					seen.Reason = c.Reason
				}
				count.Again = queue.Soonest(count.Again, max(0, c.Steady.Sub(now)))
			}
			count.add(pod.NamespacedName, seen, p.Generation)
		}
	}
	return count
}

func (c *Count) add(pod types.NamespacedName, s PodState, newest int64) {
	c.Pods[pod] = s
	c.Injected++
	if s.Generation == newest {
		c.Current++
	}
	switch s.State {
	case Ready:
		c.Ready++
	case Failing:
		if c.Failing++; c.Worst.Name == "" {
			c.Worst = pod
		}
	case Starting:
	}
}
