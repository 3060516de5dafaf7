package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// reconcileInvalid reconciles after invalid.
func (b *bench) reconcileInvalid(text string) {
	b.t.Helper()
	b.invalid(text)
	b.reconcileLater()
}

// invalid makes the annotations invalid (valid if text is empty).
func (b *bench) invalid(text string) {
	b.object.Invalid, b.object.MainAnnotatedAt = nil, b.clock.Now()
	if text != "" {
		b.object.Invalid = errors.New(text)
	}
}

func TestAConditionIsReportedOnceWhileItLasts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		b.reconcileInvalid("bad")
		b.clock.Step(time.Second)
	}
	b.reconcileInvalid("worse")
	b.Expect(b.emitted).To(HaveExactElements(
		And(HaveField("Note", "bad"), HaveField("Warning", true), HaveField("UID", BeEquivalentTo("uid"))),
		HaveField("Note", "worse"),
	))
}

func TestARecurringConditionHasANewEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		b.reconcileInvalid("bad")
		b.clock.Step(time.Second)
		b.reconcileInvalid("")
	}
	b.Expect(b.emitted).To(HaveLen(2))
	b.Expect(b.emitted[0].Occurrence).NotTo(Equal(b.emitted[1].Occurrence))
}

func TestABurstOfConditionsIsCoalesced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 200 {
		b.invalid(fmt.Sprint("bad ", n))
		b.reconcile()
	}
	b.Expect(b.emitted).To(HaveLen(1), "within one burst")
	for n := range 200 {
		b.reconcileInvalid(fmt.Sprint("worse ", n))
	}
	b.Expect(b.emitted).To(HaveLen(201))
}

func TestAFailedEventIsWrittenLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	for range 2 {
		b.Expect(b.try()).To(MatchError(b.refuse))
	}
	b.refuse = nil
	b.reconcileLater()
	b.Expect(b.reasons()).To(HaveExactElements("InvalidAnnotation"))
}

func TestOnlyEventsOfDriftsOutliveTheirCondition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.reconcile()
	b.write("k")
	b.reconcileLater()
	b.refuse = errors.New("forbidden")
	for _, change := range []func(){
		func() { b.removeKey("k") }, // drifted
		func() { b.write("k") },     // repaired
		func() { b.invalid("bad") },
		func() { b.invalid("") },
	} {
		change()
		b.clock.Step(coalesce)
		_ = b.try()
	}
	b.refuse = nil
	b.reconcileLater()
	b.Expect(b.reasons()).To(HaveExactElements("Drifted"))
}

func TestNothingIsReportedAboutDeletedObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	_ = b.try()
	b.refuse, b.object = nil, nil
	b.reconcileLater()
	b.Expect(b.emitted).To(BeEmpty())
}

// setProblem sets or clears the problem in the status.
func (b *bench) setProblem(sentence string) {
	s := status.Status{Keys: map[string]status.Entry{}}
	if sentence != "" {
		s.Problem = &status.ObjectProblem{Error: "InvalidAnnotation", Message: sentence}
	}
	b.object.Status = annotated.EntriesOf(s, nil)
}

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
			MainAnnotatedAt: b.clock.Now(), Request: annotation.Request{Present: true}, Invalid: errors.New("not correct"),
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
	again := suitetest.Sure(b.Reconcile(t.Context(), last))
	b.Expect(again).To(BeNumerically(">", 0), "it is reconciled again without a change")
	b.clock.Step(again)
	b.Expect(b.Reconcile(t.Context(), last)).Error().NotTo(HaveOccurred())
	b.Expect(b.emitted[maxEvents+1].Name).To(Equal(last.Name))
}

func TestAFixedProblemIsNotReportedLater(t *testing.T) {
	t.Parallel()
	for used, want := range map[int][]string{0: {failure.ReasonDrifted}, maxEvents + 1: {}} {
		b := newBench(t)
		for range used {
			b.events.Take(cm.Namespace)
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
