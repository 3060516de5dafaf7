package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// entryAfter returns the status entry of the key after one result.
func entryAfter(t *testing.T, object fixture, item plan.Item) (status.Entry, plan.Plan) {
	t.Helper()
	p, s := planned(t, object.object(), item)
	NewWithT(t).Expect(p.SetStatus).To(BeTrue())
	return s.Keys[theKey], p
}

// A good entry describes its body, with the time of the last change.
func TestEntryOfABody(t *testing.T) {
	ours := asking().ownedBy(annotation.FieldManager)
	undated := wrote("b")
	undated.ChangedAt = time.Time{}
	for name, tt := range map[string]struct {
		object fixture
		body   string
		at     time.Time
	}{
		"first":              {asking(), "b", noon},
		"binary":             {asking(), "b\xff", noon},
		"changed":            {ours.noted(wrote("a")), "b", noon},
		"same body, new URL": {ours.noted(from("https://old.example.com", wrote("b"))), "b", noon.Add(-time.Hour)},
		"same body, no time": {ours.noted(from("https://old.example.com", undated)), "b", noon},
	} {
		item := content(6, tt.body)
		binary := strings.HasSuffix(tt.body, "\xff")
		want := status.Entry{
			URL: theURL, SHA256: digest(tt.body), Size: int64(len(tt.body)), ChangedAt: tt.at,
			Binary: binary, UIDMark: "uid-1", Fence: fence(6),
		}
		g := NewWithT(t)
		got, p := entryAfter(t, tt.object, item)
		g.Expect(got).To(Equal(want), name)
		bytes := len(p.Status)
		if value, written := p.Values[theKey]; written {
			g.Expect(value.Binary).To(Equal(binary), name)
			bytes += len(tt.body)
		}
		g.Expect(p.Bytes()).To(BeEquivalentTo(bytes), name)
	}
}

// A failing entry has an explanation, and keeps its start while the same URL fails.
func TestEntryOfAFailure(t *testing.T) {
	next := timestamppb.New(noon.Add(time.Hour))
	explained := func(r *v1.Result) {
		f := r.GetFailure()
		f.Attempts, f.NextAt, f.WaitsFor = 3, next, v1.WaitsFor_WAITS_FOR_PAUSE
	}
	earlier := failing(wrote("a"), "Timeout")
	moved := earlier
	moved.URL, moved.ErrorURL = "https://old.example.com", "https://older.example.com"
	for name, tt := range map[string]struct {
		object  fixture
		since   time.Time
		failing string
	}{
		"first":                {asking(), noon, theURL},
		"another reason":       {asking().ownedBy(annotation.FieldManager).noted(earlier), noon.Add(-time.Hour), ""},
		"another URL":          {asking().ownedBy(annotation.FieldManager).noted(moved), noon, theURL},
		"back to the held URL": {asking().ownedBy(annotation.FieldManager).noted(elsewhere(earlier)), noon, ""},
	} {
		got, p := entryAfter(t, tt.object, failed(6, badStatus, explained))
		g := NewWithT(t)
		g.Expect(got).To(And(HaveField("Since", tt.since), HaveField("ErrorURL", tt.failing),
			HaveField("Attempts", BeEquivalentTo(3)), HaveField("UIDMark", "uid-1")), name)
		g.Expect(got.Why()).To(Equal(status.Explanation{
			HTTPStatus: 503, Message: "data.example.com responded with 503", NextTry: next.AsTime(),
			WaitsFor: "pause of data.example.com",
		}), name)
		g.Expect(p.Decisions[0].Events[0].Again).To(BeTemporally("==", noon), name)
	}
}

// elsewhere returns the entry with a failure of another URL.
func elsewhere(e status.Entry) status.Entry {
	e.ErrorURL = "https://old.example.com"
	return e
}

// A key is stale if it was given up and has failed for long, as in curlctl and in the watcher's
// metric.
func TestEntryOfAStaleKey(t *testing.T) {
	const long = failure.StaleIntervals * 10 * time.Minute
	for name, tt := range map[string]struct {
		gaveUp          bool
		interval, fails time.Duration
		stale           bool
		after           time.Duration // since the start of the second
	}{
		"just longer":     {true, 10 * time.Minute, long + time.Second, true, 0},
		"within a second": {true, 10 * time.Minute, long + time.Millisecond, true, time.Second / 2},
		"just not":        {true, 10 * time.Minute, long, false, 0},
		"still tried":     {false, 10 * time.Minute, time.Hour, false, 0},
		"fetched once":    {true, 0, time.Hour, false, 0},
	} {
		got, _ := entryAfter(t, asking(), failed(6, badStatus, func(r *v1.Result) {
			r.Want.Refresh = durationpb.New(tt.interval)
			r.GetFailure().GaveUp, r.GetFailure().FirstFailedAt = tt.gaveUp, timestamppb.New(noon.Add(tt.after-tt.fails))
			r.ObservedAt = timestamppb.New(noon.Add(tt.after))
		}))
		NewWithT(t).Expect(got.Stale).To(Equal(tt.stale), name)
	}
}

// The status explains an obstacle in the words of the Event.
func TestEntryOfAnObstacle(t *testing.T) {
	for obstacle, gaveUp := range map[plan.Obstacle]bool{
		plan.Immutable: true, plan.TooLarge: true, plan.Rejected: false,
	} {
		before := failing(status.Entry{}, "Timeout")
		before.GaveUp = true
		got, p := entryAfter(t, asking().noted(before).behind(obstacle), content(6, "b"))
		note, _, _ := strings.Cut(p.Decisions[0].Events[0].Note, " [")
		NewWithT(t).Expect(got).To(And(HaveField("Why().Message", note), HaveField("GaveUp", gaveUp),
			HaveField("Attempts", BeZero())), string(obstacle))
	}
}

// Different problems have different Events, and the same problem keeps its Event.
func TestOccurrences(t *testing.T) {
	of := func(object fixture, item plan.Item) string { return eventOf(t, object, item).Occurrence }
	status404 := func(r *v1.Result) { r.GetFailure().StatusCode = 404 }
	held := asking().noted(wrote("a")).object().Object
	later := asking().noted(status.Entry{URL: theURL, SHA256: digest("a"), Fence: fence(6)}).object().Object
	otherURL := content(7, "b")
	otherURL.Result.Want.Url = "https://other.example.com"
	otherKey := content(7, "b")
	otherKey.Key.Key = "other"
	shared := asking().without(annotation.DefaultKey).ownedBy(annotation.FieldManager, "person")
	all := map[string]string{
		"tried":         of(asking(), failed(7, badStatus)),
		"given up":      of(asking(), failed(7, badStatus, gaveUp)),
		"given up, 404": of(asking(), failed(7, badStatus, gaveUp, status404)),
		"kept":          of(shared.noted(wrote("a")), reconcile()),
		"kept, written since": of(shared.noted(status.Entry{URL: theURL, SHA256: digest("a"), Fence: fence(6)}),
			reconcile()),
		"rejected":              plan.Refusal(held, content(7, "b"), plan.Rejected).Occurrence,
		"rejected, other URL":   plan.Refusal(held, otherURL, plan.Rejected).Occurrence,
		"rejected, other key":   plan.Refusal(held, otherKey, plan.Rejected).Occurrence,
		"rejected after a body": plan.Refusal(later, content(7, "b"), plan.Rejected).Occurrence,
		"no room":               plan.Refusal(held, content(7, "b"), plan.StatusTooLarge).Occurrence,
		"budget":                plan.OverBudget(held, content(7, "b")).Occurrence,
		"budget, other key":     plan.OverBudget(held, otherKey).Occurrence,
		"budget after a body":   plan.OverBudget(later, content(7, "b")).Occurrence,
	}
	NewWithT(t).Expect(slices.Compact(slices.Sorted(maps.Values(all)))).To(HaveLen(len(all)), "distinct occurrences")
	for name, again := range map[string]string{
		"tried":    of(asking(), failed(8, badStatus)),
		"rejected": plan.Refusal(held, content(9, "c"), plan.Rejected).Occurrence,
		"no room":  plan.Refusal(held, content(9, "c"), plan.StatusTooLarge).Occurrence,
		"budget":   plan.OverBudget(held, content(9, "c")).Occurrence,
	} {
		NewWithT(t).Expect(again).To(Equal(all[name]), name)
	}
}

// A status that is too long loses sizes and explanations first, then foreign keys. It keeps
// fences and digests.
func TestALongStatusIsShortened(t *testing.T) {
	occupied := failing(status.Entry{}, "KeyExists")
	taken := failing(wrote("t"), "KeyExists")
	whole := map[string]status.Entry{
		"occupied": occupied, "taken": taken, "failing": failing(status.Entry{}, "Timeout"), "well": wrote("w"),
	}
	theirs := failing(status.Entry{Size: 7, Annotation: "example.com/other"}, "KeyExists")
	theirs.Explanation = &status.Explanation{Message: "of another installation"}
	object := func(room int) known {
		o := asking().object()
		o.Status.Keys, o.Room = maps.Clone(whole), room
		o.Others.Keys = map[string]status.Entry{"theirs": theirs}
		return o
	}
	lengths := map[string]int{}
	for room := 4096; room > 0; room-- {
		p, s := planned(t, object(room), content(6, "b"))
		state := "whole"
		switch mine := s.Keys[theKey]; {
		case len(s.Keys) < 6:
			state = "without others"
		case mine.Size == 0:
			state = "without sizes"
		}
		NewWithT(t).Expect(s.Keys).To(And(HaveKeyWithValue(theKey, HaveField("Fence", fence(6))),
			HaveKeyWithValue("taken", HaveField("HasBody()", true)), HaveKeyWithValue("well", HaveField("HasBody()", true)),
			HaveKeyWithValue("failing", And(HaveField("Failing()", true), HaveField("ByWriter()", false))),
			HaveKeyWithValue("theirs", theirs)), "in %d bytes: %s", room, p.Status)
		if before, seen := lengths[state]; seen && before != len(p.Status) || state != "without others" &&
			len(p.Status) > room {
			t.Fatalf("%s in %d bytes: %d", state, room, len(p.Status))
		}
		if _, seen := lengths[state]; !seen && room < 4096 && room != lengths["last"]-1 {
			t.Fatalf("%s already in %d bytes, after %d", state, room, lengths["last"])
		}
		lengths[state], lengths["last"] = len(p.Status), len(p.Status)
	}
	NewWithT(t).Expect(lengths).To(HaveLen(4), "states")
}
