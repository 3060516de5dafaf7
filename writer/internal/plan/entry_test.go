package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
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
		got, p := entryAfter(t, tt.object, failure(6, badStatus, explained))
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
	const long = pipeline.StaleIntervals * 10 * time.Minute
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
		got, _ := entryAfter(t, asking(), failure(6, badStatus, func(r *v1.Result) {
			r.Want.Refresh = durationpb.New(tt.interval)
			r.GetFailure().GaveUp, r.GetFailure().FirstFailedAt = tt.gaveUp, timestamppb.New(noon.Add(tt.after-tt.fails))
			r.ObservedAt = timestamppb.New(noon.Add(tt.after))
		}))
		NewWithT(t).Expect(got.Stale).To(Equal(tt.stale), name)
	}
}

// The status explains an obstacle in the words of the Event.
func TestEntryOfAnObstacle(t *testing.T) {
	for obstacle, gaveUp := range map[apiserver.Class]bool{
		apiserver.Immutable: true, apiserver.TooLarge: true, apiserver.Rejected: false,
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
	held := asking().noted(wrote("a")).object()
	later := asking().noted(status.Entry{URL: theURL, SHA256: digest("a"), Fence: fence(6)}).object()
	otherURL := content(7, "b")
	otherURL.Result.Want.Url = "https://other.example.com"
	otherKey := content(7, "b")
	otherKey.Key.Key = "other"
	shared := asking().without(annotation.DefaultKey).ownedBy(annotation.FieldManager, "person")
	all := map[string]string{
		"tried":         of(asking(), failure(7, badStatus)),
		"given up":      of(asking(), failure(7, badStatus, gaveUp)),
		"given up, 404": of(asking(), failure(7, badStatus, gaveUp, status404)),
		"kept":          of(shared.noted(wrote("a")), reconcile()),
		"kept, written since": of(shared.noted(status.Entry{URL: theURL, SHA256: digest("a"), Fence: fence(6)}),
			reconcile()),
		"rejected":              plan.Refusal(held, content(7, "b"), apiserver.Rejected).Occurrence,
		"rejected, other URL":   plan.Refusal(held, otherURL, apiserver.Rejected).Occurrence,
		"rejected, other key":   plan.Refusal(held, otherKey, apiserver.Rejected).Occurrence,
		"rejected after a body": plan.Refusal(later, content(7, "b"), apiserver.Rejected).Occurrence,
		"no room":               plan.Refusal(held, content(7, "b"), apiserver.StatusTooLarge).Occurrence,
		"budget":                plan.OverBudget(held, content(7, "b")).Occurrence,
		"budget, other key":     plan.OverBudget(held, otherKey).Occurrence,
		"budget after a body":   plan.OverBudget(later, content(7, "b")).Occurrence,
	}
	NewWithT(t).Expect(slices.Compact(slices.Sorted(maps.Values(all)))).To(HaveLen(len(all)), "distinct occurrences")
	for name, again := range map[string]string{
		"tried":    of(asking(), failure(8, badStatus)),
		"rejected": plan.Refusal(held, content(9, "c"), apiserver.Rejected).Occurrence,
		"no room":  plan.Refusal(held, content(9, "c"), apiserver.StatusTooLarge).Occurrence,
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
	object := func(room int) *plan.Object {
		o := asking().object()
		o.Status.Keys, o.Room = maps.Clone(whole), room
		return o
	}
	lengths := map[string]int{}
	for room := 4096; room > 0; room-- {
		p, s := planned(t, object(room), content(6, "b"))
		state := "whole"
		switch mine := s.Keys[theKey]; {
		case len(s.Keys) < 5:
			state = "without others"
		case mine.Size == 0:
			state = "without sizes"
		}
		NewWithT(t).Expect(s.Keys).To(And(HaveKeyWithValue(theKey, HaveField("Fence", fence(6))),
			HaveKeyWithValue("taken", HaveField("HasBody()", true)), HaveKeyWithValue("well", HaveField("HasBody()", true)),
			HaveKeyWithValue("failing", HaveField("Failing()", true))), "in %d bytes: %s", room, p.Status)
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

const page = "<!DOCTYPE html><title>Sign in</title>"

func TestIsHTML(t *testing.T) {
	utf16 := func(text string) string {
		wide := "\xff\xfe"
		for _, c := range []byte(text) {
			wide += string([]byte{c, 0})
		}
		return wide
	}
	for body, want := range map[string]bool{
		page: true, "\ufeff\r\n <HTML lang=en>": true, "<!-- by proxy -->\n<head>": true, utf16(page): true,
		`<?xml version="1.0"?><!DOCTYPE html PUBLIC "x">`: true, "<body/>": true, "<form action=/login>": true,
		"": false, "{}": false, "<project>": false, "<!-- by hand --><project>": false, "text <html>": false,
		"<htmlx>": false, `<?xml version="1.0"?><feed>`: false, "<svg xmlns=x>": false, "<?php": false,
	} {
		NewWithT(t).Expect(plan.IsHTML([]byte(body))).To(Equal(want), "%q", body)
	}
}

// The values of the object are read before a page replaces one.
func TestAPageReplacesOnlyAPage(t *testing.T) {
	const json = `{"a":1}`
	holding := func(was string) *plan.Object {
		o := asking().wrote(was).ownedBy(annotation.FieldManager).holding(was).object()
		o.Pages = map[string]bool{theKey: plan.IsHTML([]byte(was))}
		return o
	}
	allowed := holding(json)
	allowed.Request.AllowHTML = true
	edited := asking().wrote(page).ownedBy("kubectl").holding(json).object()
	unread := holding(json)
	unread.Values, unread.Pages = nil, nil
	pinned := content(9, page)
	pinned.Result.Want.Sha256 = digest(page)
	for name, tt := range map[string]struct {
		object *plan.Object
		item   plan.Item
		want   plan.Outcome
	}{
		"a page over JSON":           {holding(json), content(9, page), plan.Refused},
		"a page over a page":         {holding("<html>"), content(9, page), plan.Written},
		"JSON over a page":           {holding(page), content(9, json), plan.Written},
		"a page that is allowed":     {allowed, content(9, page), plan.Written},
		"a page with its digest":     {holding(json), pinned, plan.Written},
		"the page over an edit":      {edited, content(9, page), plan.Written},
		"another page over an edit":  {edited, content(9, "<html>"), plan.Refused},
		"a page in an empty object":  {asking().object(), content(9, page), plan.Written},
		"a page for unread values":   {unread, content(9, page), ""},
		"a page over a pending body": {holding("<html>"), content(10, page), plan.Refused},
	} {
		items := []plan.Item{tt.item}
		if strings.HasSuffix(name, "pending body") {
			items = append(items, content(9, json))
		}
		p := plan.Planner{Prune: true}.Plan(tt.object, items)
		if tt.want == "" {
			NewWithT(t).Expect(p.NeedValues).To(BeTrue(), name)
			continue
		}
		d := p.Decisions[0]
		NewWithT(t).Expect([]any{d.Outcome, d.NewPage}).To(Equal([]any{tt.want, tt.want == plan.Refused}), name)
		if tt.want == plan.Refused {
			NewWithT(t).Expect(d.Events).To(HaveExactElements(HaveField("Note", "data.example.com responded with an HTML page, "+
				"perhaps a login or an error page, and key mydata holds something else, which it keeps; "+
				"set curl-allow-html to true if the page is meant "+
				"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#9]")), name)
		}
	}
}

// eventsFile lists every Event of the writer.
const eventsFile = "testdata/events.golden"

// setNextTry sets the next try: in seconds, or in an hour after giving up.
func setNextTry(f *v1.Failure) {
	if f.GetGaveUp() {
		f.Interval, f.NextAt = durationpb.New(time.Hour), timestamppb.New(noon.Add(time.Hour))
		return
	}
	f.NextAt = timestamppb.New(noon.Add(4 * time.Second))
}

// classOf returns the class of a detail, by a word in its name.
func classOf(detail v1.FailureDetail) v1.FailureClass {
	for _, of := range []struct {
		class v1.FailureClass
		words string
	}{
		{v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, "JSON|INAPPLICABLE|COSTLY|NOT_CERT|BAD_CERT"},
		{v1.FailureClass_FAILURE_CLASS_TLS_FAILED, "CERTIFICATE|HANDSHAKE|PLAIN_HTTP"},
		{v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS, "REDIRECT"},
		{v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, "ENCODING|CUT_OFF|NOT_HTTP"},
		{v1.FailureClass_FAILURE_CLASS_TIMEOUT, "CONNECT_TIMEOUT"},
		{v1.FailureClass_FAILURE_CLASS_DNS_FAILED, "DNS"},
		{v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, "PROXY|REFUSED|ROUTE|CLOSED"},
		{v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, "MESSAGE_LIMIT"},
	} {
		if regexp.MustCompile(of.words).MatchString(detail.String()) {
			return of.class
		}
	}
	return v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
}

// ofFetches returns the Events of failed fetches, for each class and detail.
func ofFetches() []plan.Event {
	details := map[v1.FailureClass][]v1.FailureDetail{}
	for n := range int32(len(v1.FailureDetail_name)) {
		if detail := v1.FailureDetail(n); n > 0 {
			details[classOf(detail)] = append(details[classOf(detail)], detail)
		}
	}
	var events []plan.Event
	add := func(object fixture, f *v1.Failure) {
		f.Attempts, f.FirstFailedAt = 6, timestamppb.New(noon)
		setNextTry(f)
		item := result(6, func(r *v1.Result) { r.Outcome = &v1.Result_Failure{Failure: f} })
		events = append(events, plan.Planner{}.Plan(object.object(), []plan.Item{item}).Decisions[0].Events...)
	}
	neverFetched := []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION, v1.FailureClass_FAILURE_CLASS_KEY_EXISTS,
		v1.FailureClass_FAILURE_CLASS_WRITE_FAILED, v1.FailureClass_FAILURE_CLASS_IMMUTABLE,
	}
	for n := range int32(len(v1.FailureClass_name)) {
		class := v1.FailureClass(n)
		if slices.Contains(neverFetched, class) {
			continue
		}
		status := int32(0)
		if class == badStatus {
			status = 404
		}
		add(asking(), &v1.Failure{Class: class, StatusCode: status})
		add(asking().noted(wrote("a")), &v1.Failure{Class: class, StatusCode: status, GaveUp: true})
		for _, detail := range details[class] {
			add(asking(), &v1.Failure{Class: class, Detail: detail})
		}
	}
	add(asking(), &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, LimitBytes: 1 << 20})
	add(asking(), &v1.Failure{
		Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Detail: v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST,
		Redirects: 2,
	})
	add(asking(), &v1.Failure{Class: timeout, TimeLimit: durationpb.New(5 * time.Second)})
	add(asking(), &v1.Failure{
		Class: v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH, Sha256: strings.Repeat("0123456789abcdef", 4),
	})
	add(asking(), &v1.Failure{Class: badStatus, StatusCode: 429, WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE})
	return events
}

// ofWrites returns the Events of the writer's own failures.
func ofWrites(t *testing.T) []plan.Event {
	t.Helper()
	of := func(object fixture, item plan.Item) plan.Event { return eventOf(t, object, item) }
	body := content(6, "b")
	object := asking().object()
	noLonger := asking().annotated(annotation.DefaultKey, "other=https://data.example.com").noted(wrote("a"))
	noLonger.owners = map[string]bool{annotation.FieldManager: true, "kustomize-controller": true}
	pinnedKey := asking().noted(wrote("a")).ownedBy(annotation.FieldManager).
		annotated("x-kv8s.io/curl-refresh", "1h").annotated("x-kv8s.io/curl-sha256", theKey+"="+digest("c"))
	pinnedKey.history = map[string][]byte{digest("c"): nil}
	found := pinnedKey
	found.history = map[string][]byte{digest("c"): []byte("c")}
	return []plan.Event{
		of(pinnedKey, body), of(found, reconcile()),
		of(asking().noted(failing(wrote("a"), "Timeout")), body),
		of(asking().ownedBy("person"), body),
		of(asking().behind(apiserver.Immutable), body),
		of(asking().behind(apiserver.TooLarge), body),
		of(asking().noted(wrote("a")).behind(apiserver.Rejected), body),
		of(noLonger, reconcile()),
		plan.Refusal(object, reconcile(), apiserver.Rejected),
		plan.Denial(reconcile(), false), plan.Denial(reconcile(), true),
		plan.Refusal(object, body, apiserver.Rejected), plan.Refusal(object, body, apiserver.StatusTooLarge),
		plan.Denial(body, false), plan.OverBudget(object, body), plan.Recovered(body),
	}
}

// A user who guesses the next fence must not choose the reason of an Event, because it becomes a metric
// label.
func TestAForgedReasonDoesNotReachAnEvent(t *testing.T) {
	for _, forged := range []string{"Forged", "InvalidAnnotation"} {
		object := asking().annotated(annotation.StatusKey,
			`{"`+theKey+`":{"error":"`+forged+`","fence":"`+fence(6).String()+`"}}`).object()
		for _, e := range (plan.Planner{}).Plan(object, []plan.Item{failure(6, timeout)}).Decisions[0].Events {
			NewWithT(t).Expect(plan.Reasons()).To(ContainElement(e.Reason), forged)
		}
	}
}

// TestEveryEventWordForWord compares all Events of the writer with a file. UPDATE_GOLDEN=1 writes
// it.
func TestEveryEventWordForWord(t *testing.T) {
	g := NewWithT(t)
	reasons, lines := map[string]bool{}, map[string]bool{}
	for _, e := range append(ofFetches(), ofWrites(t)...) {
		reasons[e.Reason] = true
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		lines[fmt.Sprintf("%-8s %-16s %s\n", kind, e.Reason, e.Note)] = true
		g.Expect(e.Note).NotTo(MatchRegexp(`[?\n]|token=`))
		g.Expect(len(e.Note)).To(BeNumerically("<=", 1024), e.Note)
		if cause := sentence.WhyEmpty(pipeline.ClassOf(e.Reason)); cause != "" && e.Action != "Remove" {
			g.Expect(e.Note).To(HaveSuffix("["+cause+"]"), e.Reason)
		}
	}
	for _, reason := range plan.Reasons() {
		g.Expect(reasons).To(HaveKey(reason))
	}
	got := strings.Join(slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return cmp.Compare(a[9:], b[9:]) }),
		"")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		g.Expect(os.WriteFile(eventsFile, []byte(got), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(eventsFile)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(string(want)), "UPDATE_GOLDEN=1 go test writes "+eventsFile)
}
