package fault_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("A ConfigMap with other writers", func() {
	It("ends with the last of 100 annotations in a second, after few fetches", func(ctx SpecContext) {
		env.World(ctx, world.Options{}).EndsWithLastOf(ctx, 100)
	})

	It("is filled despite constant edits, which are kept", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/busy").Says("between the edits")
		cm := w.Create(ctx, "busy", world.Holding("counter", "0"))
		edits := 0
		stop := world.Meanwhile(ctx, func() {
			edits++
			cm.Put(ctx, "counter", fmt.Sprint(edits))
		})
		cm.Ask(ctx, "mydata="+page.URL())
		cm.EventuallyHasData(ctx, "mydata", "between the edits")
		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "between the edits")
		stop()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"counter": fmt.Sprint(edits), "mydata": "between the edits"}))
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("is repaired at growing intervals while another controller reverts it, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "contested", "ours")
		stop := world.Meanwhile(ctx, func() {
			if object := w.History.Latest(cm.Name); object != nil && object.Data["mydata"] == "ours" {
				cm.Put(ctx, "mydata", "theirs")
			}
		})
		Eventually(ctx, func() []string { return cm.Reasons(ctx) }).WithPolling(100 * time.Millisecond).
			Should(ContainElement("Contested"))
		writes := cm.Writes(ctx)
		Consistently(ctx, func() int { return cm.Writes(ctx) }).WithTimeout(3 * time.Second).
			WithPolling(200 * time.Millisecond).Should(BeNumerically("<=", writes+1))
		stop()
		Expect(cm.Events(ctx, "Contested")).To(HaveLen(1))
		Expect(cm.Writes(ctx)).To(BeNumerically("<=", 6))
	})

	It("is not written while its namespace is terminating", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		slow := w.Origin.Page("/slow").Says("too late")
		release := slow.Hold()
		w.Create(ctx, "doomed", world.Asking("mydata="+slow.URL()+" missing="+w.Origin.Page("/missing").URL()))
		Eventually(slow.Waiting).Should(Equal(1))
		Expect(w.Cluster.Client.CoreV1().Namespaces().Delete(ctx, w.Namespace, metav1.DeleteOptions{})).To(Succeed())
		release()
		w.EventuallyQuiet(ctx)
		Expect(w.Writer().Log.Count()).To(BeNumerically("<", 40))
	})
})
