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
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// expectRepair expects an immediate repair of the key.
func (b *bench) expectRepair(again time.Duration) {
	b.t.Helper()
	b.Expect(again).To(BeZero(), "the repair waits")
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_DRIFT))
}

// repairAll removes and repairs the key n times.
func repairAll(b *bench, n int) {
	b.t.Helper()
	b.request("https://example.com", "k")
	b.reconcile()
	b.write("k")
	for range n {
		b.removeKey("k")
		b.expectRepair(b.reconcileLater())
		b.write("k")
		b.reconcileLater()
	}
}

func TestRepairsOfAContestedKeySlowDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	for _, seconds := range []int{10, 20, 40, 80, 160, 320, 600, 600} {
		pause := time.Duration(seconds) * time.Second
		before := b.published()
		b.removeKey("k")
		// Two reconciles have passed since the last repair.
		b.Expect(b.reconcileLater()).To(Equal(pause - 2*coalesce))
		b.clock.Step(pause - 2*coalesce - time.Nanosecond)
		b.Expect(b.reconcile()).To(Equal(time.Nanosecond))
		b.Expect(b.published()).To(Equal(before))
		b.clock.Step(time.Nanosecond)
		b.Expect(b.reconcile()).To(BeZero())
		b.Expect(b.published()).To(Equal(before + 1))
		b.write("k")
		b.reconcileLater()
	}
	b.Expect(b.reasons()).To(HaveExactElements("Drifted", "Drifted", "Drifted", "RepairBackOff"))
}

func TestTheEventAboutAContestedKeyNamesItsManager(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	b.object.Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "flux/Apply/2026-01-02T03:04:05Z"}
	b.reconcileLater()
	b.Expect(b.emitted[len(b.emitted)-1].Note).To(Equal("key k was changed by field manager flux; " +
		"remove the key from its manifest; repeated changes are repaired at growing intervals"))
}

func TestRepairsAreImmediateAgainAfterAQuietPeriod(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	b.clock.Step(20*time.Minute + time.Second)
	b.removeKey("k")
	b.expectRepair(b.reconcile())
}

func TestARepairThatCannotBePublishedDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 1)
	b.removeKey("k")
	b.broker.Stop()
	for range 5 {
		b.clock.Step(coalesce)
		b.Expect(b.try()).NotTo(Succeed())
	}
	b.Expect(b.broker.Start()).To(Succeed())
	before := b.reasons()
	b.expectRepair(b.awaitBroker())
	b.Expect(b.reasons()).To(And(Equal(before), Not(ContainElement("RepairBackOff"))))
}

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
		s.Problem = &status.Problem{Error: "InvalidAnnotation", Message: sentence}
	}
	b.object.Status = annotated.EntriesOf(s, nil)
}

// holdUnrequested makes the object hold n keys and request none.
func (b *bench) holdUnrequested(n int) {
	s := status.Status{Keys: map[string]status.Entry{}}
	for i := range n {
		s.Keys[fmt.Sprint("k", i)] = status.Entry{SHA256: sum}
	}
	b.object.Status, b.object.Request = annotated.EntriesOf(s, nil), annotation.Request{}
	b.object.Owned = annotation.Ownership{State: annotation.Ours}
}

// A forged status may have any number of entries.
func TestOneMessageRemovesAllKeysThatNoPairNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdUnrequested(50)
	b.reconcile()
	b.Expect(b.requests()).To(Equal(1))
	b.Expect(b.published()).To(BeZero())
}

// In a namespace without the writer's Role, every removal is refused.
func TestRefusedRemovalsAreRepeatedAtGrowingIntervals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdUnrequested(1)
	b.reconcile()
	for range 50 {
		b.clock.Step(repeat)
		b.reconcile()
	}
	b.Expect(b.requests()).To(And(BeNumerically(">=", 5), BeNumerically("<=", 12)), "in 50 intervals")
}

func TestReportsSlowDownIfTheStatusIsReverted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.object.Invalid = errors.New("wrong")
	sentence := b.object.Request.Problem(b.object.Invalid)
	b.reconcileLater()
	for times := range 5 {
		b.Expect(b.requests()).To(Equal(times + 1))
		b.setProblem(sentence)
		b.reconcileLater()
		b.setProblem("")
		again := b.reconcileLater()
		b.Expect(b.requests()).To(Equal(times+1), "no immediate repetition")
		b.Expect(again).To(BeNumerically(">=", min(repeat<<times, time.Hour)-3*coalesce))
		b.clock.Step(again)
		b.reconcile()
	}
	b.setProblem(sentence)
	b.reconcileLater()
	b.clock.Step(3 * time.Hour)
	b.reconcile()
	before := b.requests()
	b.setProblem("")
	b.reconcileLater()
	b.Expect(b.requests()).To(Equal(before+1), "after a long pause")
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
