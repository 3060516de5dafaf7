package acceptance_test

import (
	"os/exec"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// reasonOfRow matches type and reason in a row that kubectl prints for an Event.
var reasonOfRow = regexp.MustCompile(`(?:Normal|Warning) +(\w+)`)

var _ = Describe("Events about a ConfigMap", func() {
	It("of several sources are sorted by kubectl in the right order", func(ctx SpecContext) {
		kubectl := world.Kubectl()
		w := env.World(ctx, world.Options{})
		cm := w.Create(ctx, "ordered", world.Asking("mydata="+w.Origin.Page("/missing").URL()))
		cm.EventuallyTells(ctx, "BadStatus")
		ours := cm.Events(ctx)[0]
		for reason, after := range map[string]time.Duration{"Before": -time.Minute, "After": time.Minute} {
			at := metav1.NewTime(ours.EventTime.Add(after))
			suitetest.Must(w.Cluster.Client.CoreV1().Events(w.Namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}, Reason: reason, Type: corev1.EventTypeNormal,
				InvolvedObject: corev1.ObjectReference{
					APIVersion: "v1", Kind: "ConfigMap", Namespace: w.Namespace, Name: cm.Name,
					UID: cm.Get(ctx).UID,
				},
				FirstTimestamp: at, LastTimestamp: at, Count: 1,
			}, metav1.CreateOptions{}))
		}
		for _, args := range [][]string{
			{"get", "events", "--sort-by=.lastTimestamp"},
			{"describe", "configmap", cm.Name},
			{"events"},
		} {
			command := exec.CommandContext(ctx, kubectl,
				append(args, "--kubeconfig="+w.Cluster.Kubeconfig, "--namespace="+w.Namespace)...)
			out, err := command.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
			var reasons []string
			for _, row := range reasonOfRow.FindAllStringSubmatch(string(out), -1) {
				reasons = append(reasons, row[1])
			}
			Expect(reasons).To(Equal([]string{"Before", "BadStatus", "After"}), "kubectl %v\n%s", args, out)
		}
	})
})
