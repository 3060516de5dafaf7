package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// A batch for one key has the same outcome in any order.
func TestPlanOfSeveral(t *testing.T) {
	items := []plan.Item{failure(9, timeout), content(8, "c"), failure(7, badStatus), content(6, "b")}
	g := NewWithT(t)
	p, s := planned(t, asking().object(), items...)
	g.Expect(p.Values[theKey].Body).To(BeEquivalentTo("c"), "the newest body")
	g.Expect(s.Keys).To(ill("c", "Timeout", 9))
	var reasons []string
	for _, i := range []int{3, 2, 1, 0} { // in the order of their triggers
		for _, e := range p.Decisions[i].Events {
			reasons = append(reasons, e.Reason)
		}
	}
	g.Expect(reasons).To(HaveExactElements("BadStatus", "Recovered", "Timeout"))
}

// The digest of a body from the same batch is known without a read.
func TestPlanOfTheSameBodyTwice(t *testing.T) {
	p, s := planned(t, asking().object(), content(6, "b"), content(7, "b"))
	NewWithT(t).Expect(p.NeedValues).To(BeFalse())
	NewWithT(t).Expect(p.Decisions[1].Verdict).To(Equal(plan.Unchanged))
	NewWithT(t).Expect(s.Keys[theKey].Fence).To(Equal(fence(6)))
}

// Another process that repeats an Event emits the same one.
func TestRepeatedEventsAreTheSame(t *testing.T) {
	for name, tt := range map[string]struct {
		object fixture
		item   plan.Item
	}{
		"failure":  {asking(), failure(6, badStatus)},
		"recovery": {asking().failing("Timeout"), content(6, "b")},
		"foreign":  {asking().ownedBy("person"), content(6, "b")},
		"refused":  {asking().behind(plan.Immutable), content(6, "b")},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := planned(t, tt.object.object(), tt.item)
			noted := tt.object.noted(s.Keys[theKey])
			expectNothingWritten(t, noted.object(), tt.item)
			first, again := eventOf(t, tt.object, tt.item), eventOf(t, noted, tt.item)
			NewWithT(t).Expect(again).To(And(HaveField("Reason", first.Reason),
				HaveField("Occurrence", first.Occurrence), HaveField("Note", first.Note)))
		})
	}
}

func TestAssume(t *testing.T) {
	second := func(change func(*v1.Want)) []plan.Item {
		a, b := content(6, "a"), content(7, "b")
		b.Key.Key, b.Result.Want.Key = "second", "second"
		change(b.Result.GetWant())
		return []plan.Item{a, plan.NewItem(b.Result)}
	}
	for name, tt := range map[string]struct {
		change func(*v1.Want)
		want   bool
	}{
		"two keys of one version": {func(*v1.Want) {}, true},
		"missing key":             {func(w *v1.Want) { w.Drift = "none" }, true},
		"another version":         {func(w *v1.Want) { w.ResourceVersion = "8" }, false},
		"another object":          {func(w *v1.Want) { w.Uid = "uid-2" }, false},
		"another status":          {func(w *v1.Want) { w.Status = `{"x":{}}` }, false},
		"to be read first":        {func(w *v1.Want) { w.ReadFirst = true }, false},
		"foreign key":             {func(w *v1.Want) { w.Drift = "person/Update/x" }, false},
		"same key, another URL":   {func(w *v1.Want) { w.Key, w.Url = theKey, "https://x.example.com" }, false},
		"same key, another drift": {func(w *v1.Want) { w.Key, w.Drift = theKey, "none" }, false},
		"same key":                {func(w *v1.Want) { w.Key = theKey }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o, ok := decoder().Assume(second(tt.change))
			g.Expect(ok).To(Equal(tt.want))
			if ok {
				g.Expect(o).To(And(HaveField("UID", BeEquivalentTo("uid-1")), HaveField("ResourceVersion", "7"),
					HaveField("Freshness", plan.Assumed)))
			}
		})
	}
	for name, change := range map[string]func(*v1.Result){
		"no version":        func(r *v1.Result) { r.Want.ResourceVersion = "" },
		"unreadable status": func(r *v1.Result) { r.Want.Status = "{" },
		"removal":           func(r *v1.Result) { r.Outcome = &v1.Result_Reconcile{Reconcile: &v1.Reconcile{Remove: true}} },
	} {
		item := content(6, "a")
		change(item.Result)
		_, ok := decoder().Assume([]plan.Item{item})
		NewWithT(t).Expect(ok).To(BeFalse(), name)
	}
}

func TestAssumedObject(t *testing.T) {
	item := content(6, "a")
	item.Result.Want.Status = (status.Status{Keys: map[string]status.Entry{theKey: wrote("a")}}).String()
	o, _ := decoder().Assume([]plan.Item{item})
	p := plan.Planner{}.Plan(o, []plan.Item{item})
	NewWithT(t).Expect(p.Decisions[0].Verdict).To(Equal(plan.Unchanged), "the same body of a key that is ours")
	item.Result.Want.Drift = "none"
	o, _ = decoder().Assume([]plan.Item{item})
	p = plan.Planner{}.Plan(o, []plan.Item{item})
	NewWithT(t).Expect(p.Values[theKey]).NotTo(BeNil(), "the same body for a missing key")
}
