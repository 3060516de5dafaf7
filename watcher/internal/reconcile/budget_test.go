package reconcile_test

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// T1: a namespace cannot use the Event budget of others.
func TestANamespaceOverItsBudgetGetsEventsOfLastingProblemsLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const mistakes = maxEvents + 20
	invalid := func(namespace string, n int) *annotated.Object {
		return &annotated.Object{
			Meta: informer.Meta{
				NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("cm-", n)},
				UID:            types.UID(fmt.Sprint(namespace, n)), Version: 1,
			},
			Written: b.clock.Now(), Request: annotation.Request{Present: true}, Invalid: errors.New("not correct"),
		}
	}
	for n := range mistakes {
		b.others = append(b.others, invalid("hostile", n))
	}
	b.reconcileAll(b.others)
	b.Expect(b.emitted).To(HaveLen(maxEvents))
	b.expectLogged(`"budget":"events"`)
	b.Expect(suitetest.MetricValue(b.registry, "curlmethat_watcher_events_over_budget_total")).
		To(BeEquivalentTo(mistakes - maxEvents))

	b.others = append(b.others, invalid("modest", 0))
	b.reconcileAll(b.others[mistakes:])
	b.Expect(b.emitted[maxEvents].Namespace).To(Equal("modest"), "others have their own budget")

	last := b.others[mistakes-1].NamespacedName
	again, err := b.Reconcile(t.Context(), last)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(again).To(BeNumerically(">", 0), "it is reconciled again without a change")
	b.clock.Step(again)
	b.Expect(b.Reconcile(t.Context(), last)).Error().NotTo(HaveOccurred())
	b.Expect(b.emitted[maxEvents+1].Name).To(Equal(last.Name))
}

func TestAFixedProblemIsNotReportedLater(t *testing.T) {
	t.Parallel()
	for used, want := range map[int][]string{0: {pipeline.ReasonDrifted}, maxEvents + 1: {}} {
		b := newBench(t)
		for range used {
			b.events.Take(cm.Namespace, 1)
		}
		b.request("https://example.com", "k")
		b.reconcile()
		b.write("k")
		b.reconcileLater()
		b.removeKey("k")
		b.reconcileLater() // it is repaired
		b.clock.Step(refill)
		b.reconcileLater()
		b.Expect(b.reasons()).To(Equal(want), "%d used", used)
	}
}
