package plan_test

import (
	"strings"
	"testing"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// A batch for one key has the same outcome in any order.
func TestPlanOfSeveral(t *testing.T) {
	items := []plan.Item{failure(9, timeout), content(8, "c"), failure(7, badStatus), content(6, "b")}
	p, s := planned(t, asking().object(t), items...)
	if got := string(p.Values[theKey].Body); got != "c" {
		t.Errorf("value %q, want that of the newest body", got)
	}
	if e := s.Keys[theKey]; e.Error != "Timeout" || e.SHA256 != digest("c") || e.Fence != fence(9) {
		t.Errorf("entry %s", p.Status)
	}
	var said []string
	for _, i := range []int{3, 2, 1, 0} { // in the order of their triggers
		for _, e := range p.Decisions[i].Events {
			said = append(said, e.Reason)
		}
	}
	if got := strings.Join(said, " "); got != "BadStatus Recovered Timeout" {
		t.Errorf("said %q", got)
	}
}

// The digest of a body from the same batch is known without a read.
func TestPlanOfTheSameBodyTwice(t *testing.T) {
	p, s := planned(t, asking().object(t), content(6, "b"), content(7, "b"))
	if p.NeedValues || p.Decisions[1].Verdict != plan.Unchanged || s.Keys[theKey].Fence != fence(6) {
		t.Errorf("%+v", p)
	}
}

// An Event is the same when another process repeats it.
func TestEventsAreTheSameAgain(t *testing.T) {
	for name, item := range map[string]plan.Item{
		"failure":  failure(6, badStatus),
		"recovery": content(6, "b"),
		"foreign":  content(6, "b"),
		"refused":  content(6, "b"),
	} {
		t.Run(name, func(t *testing.T) {
			object := asking()
			switch name {
			case "recovery":
				object = object.noted(failing(status.Entry{}, "Timeout"))
			case "foreign":
				object = object.ownedBy("person")
			case "refused":
				object = object.behind(plan.Immutable)
			}
			first, s := planned(t, object.object(t), item)
			again, _ := planned(t, object.noted(s.Keys[theKey]).object(t), item)
			if !again.Empty() {
				t.Errorf("written twice: %+v", again)
			}
			if len(first.Decisions[0].Events) != 1 || len(again.Decisions[0].Events) != 1 {
				t.Fatalf("events %v, then %v", first.Decisions[0].Events, again.Decisions[0].Events)
			}
			a, b := first.Decisions[0].Events[0], again.Decisions[0].Events[0]
			if a.Reason != b.Reason || a.Occurrence != b.Occurrence || a.Note != b.Note {
				t.Errorf("said %+v, then %+v", a, b)
			}
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
		"key that is gone":        {func(w *v1.Want) { w.Drift = "none" }, true},
		"another version":         {func(w *v1.Want) { w.ResourceVersion = "8" }, false},
		"another object":          {func(w *v1.Want) { w.Uid = "uid-2" }, false},
		"another status":          {func(w *v1.Want) { w.Status = `{"x":{}}` }, false},
		"to be read first":        {func(w *v1.Want) { w.ReadFirst = true }, false},
		"key in other hands":      {func(w *v1.Want) { w.Drift = "person/Update/x" }, false},
		"same key, another URL":   {func(w *v1.Want) { w.Key, w.Url = theKey, "https://x.example.com" }, false},
		"same key, another drift": {func(w *v1.Want) { w.Key, w.Drift = theKey, "none" }, false},
		"same key":                {func(w *v1.Want) { w.Key = theKey }, true},
	} {
		t.Run(name, func(t *testing.T) {
			o, ok := plan.Assume(second(tt.change))
			if ok != tt.want {
				t.Fatalf("assumed %v, want %v", ok, tt.want)
			}
			if ok && (o.UID != "uid-1" || o.ResourceVersion != "7" || o.Freshness != plan.Assumed) {
				t.Errorf("object %+v", o)
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
		if _, ok := plan.Assume([]plan.Item{item}); ok {
			t.Errorf("%s: assumed", name)
		}
	}
}

func TestAssumedObject(t *testing.T) {
	item := content(6, "a")
	item.Result.Want.Status = (status.Status{Keys: map[string]status.Entry{theKey: wrote("a")}}).String()
	o, _ := plan.Assume([]plan.Item{item})
	if d := (plan.Planner{}).Plan(o, []plan.Item{item}).Decisions[0]; d.Verdict != plan.Unchanged {
		t.Errorf("same body of a key that is ours: %v", d.Verdict)
	}
	item.Result.Want.Drift = "none"
	o, _ = plan.Assume([]plan.Item{item})
	if p := (plan.Planner{}).Plan(o, []plan.Item{item}); p.Values[theKey] == nil {
		t.Error("same body of a key that is gone is not written")
	}
}
