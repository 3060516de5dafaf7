package release

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// reachTimeout bounds an ephemeral container, with its start on a busy machine.
const reachTimeout = time.Minute

// Reach returns which addresses a pod can reach, as package reach names them. It tries
// from an ephemeral container with the origin's image in that very pod.
func Reach(ctx context.Context, c *world.Cluster, pod corev1.Pod, image string, addresses []string) (map[string]bool,
	error,
) {
	pods := c.Client.CoreV1().Pods(pod.Namespace)
	var name string
	var now *corev1.Pod
	// The kubelet writes to the pod meanwhile.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if now, err = pods.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		name = fmt.Sprintf("reach-%d", len(now.Spec.EphemeralContainers))
		now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers,
			corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: append([]string{"reach"}, addresses...),
				SecurityContext: restricted(),
			}})
		_, err = pods.UpdateEphemeralContainers(ctx, pod.Name, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add a container to pod %s: %w", pod.Name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, polling, reachTimeout, true, func(ctx context.Context) (bool, error) {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("get pod %s: %w", pod.Name, err)
		}
		return slices.ContainsFunc(now.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == name && s.State.Terminated != nil
		}), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for container %s in pod %s: %w", name, pod.Name, err)
	}
	text, err := log(ctx, c.Client, *now, corev1.PodLogOptions{Container: name})
	if err != nil {
		return nil, err
	}
	var reached map[string]bool
	if err := json.Unmarshal([]byte(text), &reached); err != nil || len(reached) != len(addresses) {
		return nil, fmt.Errorf("container %s in pod %s wrote %q", name, pod.Name, text)
	}
	return reached, nil
}

// restricted is the security context of the origin under the restricted standard.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
