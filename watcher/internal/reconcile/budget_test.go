package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric/metrictest"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// T1: one namespace cannot take the Events of others, and loses none of what lasts.
func TestANamespaceOverItsEventBudgetGetsEventsOfLastingProblemsLater(t *testing.T) {
	t.Parallel()
	b, g := newBench(t), gomega.NewWithT(t)
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
	b.lookAt(b.others)
	g.Expect(b.emitted).To(gomega.HaveLen(maxEvents))
	g.Expect(strings.Count(b.log.String(), `"budget":"events"`)).To(gomega.Equal(1), "the change is logged once")
	g.Expect(metrictest.Value(b.registry,
		"curlmethat_watcher_events_over_budget_total")).To(gomega.BeEquivalentTo(mistakes - maxEvents))

	b.others = append(b.others, invalid("modest", 0))
	b.lookAt(b.others[mistakes:])
	g.Expect(b.emitted[maxEvents].Namespace).To(gomega.Equal("modest"), "others have a budget of their own")

	last := b.others[mistakes-1].NamespacedName
	again, err := b.Reconcile(t.Context(), last)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(again).To(gomega.BeNumerically(">", 0), "it is looked at again without a change of the object")
	b.clock.Step(again)
	_, err = b.Reconcile(t.Context(), last)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(b.emitted[maxEvents+1].Name).To(gomega.Equal(last.Name))
}

func TestAProblemThatIsOverIsNotReportedLater(t *testing.T) {
	t.Parallel()
	for used, want := range map[int][]string{0: {pipeline.ReasonDrifted}, maxEvents + 1: {}} {
		b := newBench(t)
		for range used {
			b.events.Take(cm.Namespace, 1)
		}
		b.ask("https://example.com", "k")
		b.look()
		b.answer("k")
		b.lookFresh()
		b.lose("k")
		b.lookFresh() // it is repaired
		b.clock.Step(refill)
		if b.lookFresh(); !slices.Equal(b.reasons(), want) {
			t.Errorf("%d used: emitted %v", used, b.reasons())
		}
	}
}
