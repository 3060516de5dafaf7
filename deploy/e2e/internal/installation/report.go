package installation

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// reportLines is the number of lines of each log that a failed spec prints.
const reportLines = 60

// Log returns the log of a pod, or of its previous run if before is set.
func (r *Release) Log(ctx context.Context, pod corev1.Pod, before bool) string {
	GinkgoHelper()
	return suitetest.Must(log(ctx, r.Cluster.Client, pod, corev1.PodLogOptions{Previous: before}))
}

func log(ctx context.Context, client kubernetes.Interface, pod corev1.Pod, options corev1.PodLogOptions) (string,
	error,
) {
	text, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of %s: %w", pod.Name, err)
	}
	return string(text), nil
}

// Show adds the pods, ends of their logs and Events of namespaces to the report of a failed spec. It reports
// errors there too.
func Show(ctx context.Context, client kubernetes.Interface, namespaces ...string) {
	for _, namespace := range namespaces {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			AddReportEntry("pods of "+namespace, ReportEntryVisibilityFailureOrVerbose, err.Error())
			continue
		}
		for _, pod := range pods.Items {
			text, err := log(ctx, client, pod, corev1.PodLogOptions{TailLines: new(int64(reportLines))})
			if err != nil {
				text = err.Error()
			}
			AddReportEntry(fmt.Sprintf("pod %s/%s", namespace, pod.Name), ReportEntryVisibilityFailureOrVerbose,
				state(pod)+"\n"+text)
		}
		AddReportEntry("Events in "+namespace, ReportEntryVisibilityFailureOrVerbose, events(ctx, client, namespace))
	}
}

// state returns the phase of a pod and a line per container.
func state(pod corev1.Pod) string {
	lines := []string{"phase " + string(pod.Status.Phase)}
	for _, c := range pod.Status.ContainerStatuses {
		line := fmt.Sprintf("%s: ready %t, %d restarts", c.Name, c.Ready, c.RestartCount)
		if w := c.State.Waiting; w != nil {
			line += ", waits: " + w.Reason + " " + w.Message
		}
		if t := c.LastTerminationState.Terminated; t != nil {
			line += fmt.Sprintf(", exited before with %d (%s)", t.ExitCode, t.Reason)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func events(ctx context.Context, client kubernetes.Interface, namespace string) string {
	list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			lines = append(lines, fmt.Sprintf("%s/%s %s ×%d: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason,
				max(e.Count, 1), e.Message))
		}
	}
	return strings.Join(lines, "\n")
}
