package plan_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const formatSentence = "annotation value 'not correct' does not match expected format key=url"

// problems is the watcher's request to update the problem in the status.
func problems() plan.Item {
	return result(0, func(r *v1.Result) {
		r.Want.Key, r.Want.Url = status.ObjectKey, ""
		r.Outcome = &v1.Result_Sync{Sync: &v1.Sync{}}
	})
}

// The status has the problem of the annotations while it lasts, and is written only when the problem
// changes.
func TestProblems(t *testing.T) {
	held := func(message string) string {
		s := status.Status{
			Keys:    map[string]status.Entry{theKey: wrote("a")},
			Problem: &status.ObjectProblem{Error: "InvalidAnnotation", Message: message, Since: noon.Add(-time.Hour)},
		}
		return s.String()
	}
	wrong := asking().annotated(annotation.DefaultKey, "not correct")
	for name, tt := range map[string]struct {
		object  fixture
		outcome plan.Outcome
		// message is in the status afterwards. "-" means that the status is not written.
		message string
		since   time.Time
	}{
		"begins":      {wrong, plan.Written, formatSentence, noon},
		"is the same": {wrong.annotated(annotation.StatusKey, held(formatSentence)), plan.Unchanged, "-", noon},
		"is another": {
			wrong.annotated(annotation.StatusKey, held("other")), plan.Written, formatSentence,
			noon.Add(-time.Hour),
		},
		"ends":    {asking().annotated(annotation.StatusKey, held("other")), plan.Written, "", noon},
		"is none": {asking(), plan.Unchanged, "-", noon},
		"with the annotation": {asking().without(annotation.DefaultKey).
			annotated(annotation.StatusKey, held("other")), plan.Written, "", noon},
		"while suspended": {asking().annotated("x-kv8s.io/curl-suspend", "true").
			annotated(annotation.StatusKey, held("other")), plan.Late, "-", noon},
		"while left out":      {wrong.labelled("reconciler", "ignore"), plan.Late, "-", noon},
		"of an older reading": {wrong.seen(plan.FromPatch), plan.Written, formatSentence, noon},
		"of an immutable one": {wrong.behind(plan.Immutable), plan.Written, formatSentence, noon},
		"of an unknown option": {asking().annotated("x-kv8s.io/curl-refrsh", "1h"), plan.Written, "annotation " +
			"x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?", noon},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, s := planned(t, tt.object.object(), problems())
			g.Expect(p.Decisions).To(HaveExactElements(plan.Decision{Outcome: tt.outcome}))
			g.Expect(p.Values).To(BeEmpty())
			g.Expect(p.SetStatus).To(Equal(tt.message != "-"), p.Status)
			switch tt.message {
			case "-":
			case "":
				g.Expect(s.Problem).To(BeNil())
				g.Expect(s.Keys[theKey].SHA256).To(Equal(digest("a")))
			default:
				g.Expect(s.Problem).To(HaveValue(Equal(
					status.ObjectProblem{Error: "InvalidAnnotation", Message: tt.message, Since: tt.since})))
			}
		})
	}
}

// The status has KeyExists for a foreign key, and is written only when that is new or the URL changes.
func TestForeignKeysAreInTheStatus(t *testing.T) {
	const theirs = "person"
	noted := func(e status.Entry) fixture { return asking().ownedBy(theirs).noted(e) }
	refused := failing(status.Entry{Fence: fence(4)}, "KeyExists")
	elsewhere := refused
	elsewhere.ErrorURL = theURL + "&other"
	for name, tt := range map[string]struct {
		object  fixture
		outcome plan.Outcome
		// fence and since are expected in the written entry. Nothing is written if the outcome is Unchanged.
		fence status.Fence
		since time.Time
	}{
		"begins":             {asking().ownedBy(theirs), plan.Written, status.Fence{}, noon},
		"after a failure":    {noted(failing(status.Entry{Fence: fence(4)}, "Timeout")), plan.Written, fence(4), noon},
		"on a copy":          {noted(copied(refused)), plan.Written, status.Fence{}, noon},
		"for another URL":    {noted(elsewhere), plan.Written, fence(4), noon},
		"is the same":        {noted(refused), plan.Unchanged, status.Fence{}, noon},
		"is ours":            {asking().ownedBy(annotation.FieldManager), plan.Unchanged, status.Fence{}, noon},
		"is free":            {asking(), plan.Unchanged, status.Fence{}, noon},
		"once held our body": {noted(wrote("a")), plan.Unchanged, status.Fence{}, noon},
		"not live":           {asking().ownedBy(theirs).seen(plan.FromPatch), plan.Written, status.Fence{}, noon},
		"without a record":   {asking().unrecorded(), plan.Unchanged, status.Fence{}, noon},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, s := planned(t, tt.object.object(), problems())
			g.Expect(p.Decisions).To(HaveExactElements(plan.Decision{Outcome: tt.outcome}))
			g.Expect(p.Values).To(BeEmpty())
			g.Expect(p.SetStatus).To(Equal(tt.outcome == plan.Written))
			if !p.SetStatus {
				return
			}
			g.Expect(s.Keys[theKey]).To(And(HaveField("Error", "KeyExists"), HaveField("FailingURL()", theURL),
				HaveField("GaveUp", true), HaveField("HasBody()", false), HaveField("Fence", tt.fence),
				HaveField("Since", BeTemporally("==", tt.since)),
				HaveField("Why().Message", "key mydata already exists and is not managed by curl-me-that; "+
					"remove it from the ConfigMap, or choose another key")), p.Status)
			again := asking().ownedBy(theirs).annotated(annotation.StatusKey, p.Status).object()
			expectNothingWritten(t, again, problems())
		})
	}
}

// expectNothingWritten expects an empty plan.
func expectNothingWritten(t *testing.T, object known, item plan.Item) {
	t.Helper()
	p, _ := planned(t, object, item)
	NewWithT(t).Expect(p.Empty()).To(BeTrue(), "wrote %s", p.Status)
}

// A failure does not inherit its start from KeyExists.
func TestAFailureOfAFormerlyForeignKeyStartsNow(t *testing.T) {
	free := asking().noted(failing(status.Entry{Fence: fence(4)}, "KeyExists"))
	_, s := planned(t, free.object(), failed(7, timeout))
	NewWithT(t).Expect(s.Keys[theKey]).To(And(HaveField("Error", "Timeout"),
		HaveField("Since", BeTemporally("==", noon))))
}

// Entries of foreign keys give way to a body, and are not written again without room.
func TestForeignKeysGiveWay(t *testing.T) {
	other := failing(status.Entry{}, "KeyExists")
	full := asking().noted(status.Entry{}).object()
	full.Status.Keys = map[string]status.Entry{"other": other}
	g := NewWithT(t)
	_, have := planned(t, full, content(7, "a"))
	g.Expect(have.Keys).To(HaveLen(2))
	without := status.Status{Keys: map[string]status.Entry{theKey: have.Keys[theKey]}}
	full.Room = len(without.String())
	p, have := planned(t, full, content(7, "a"))
	g.Expect(len(p.Status)).To(BeNumerically("<=", full.Room))
	g.Expect(p.Values).To(HaveLen(1))
	g.Expect(have.Keys[theKey].HasBody()).To(BeTrue())

	tight := asking().ownedBy("person").object()
	tight.Room = 10
	expectNothingWritten(t, tight, problems())
}

// The message has only numbers. The writer makes the sentence.
func TestTheStatusHasTheLimitOfTheNamespace(t *testing.T) {
	for _, c := range []struct {
		bound *v1.Bound
		want  string
	}{
		{&v1.Bound{Keys: 10}, "namespace ns asks for more than 10 keys and older ConfigMaps come first; remove some, or " +
			"have --namespace-keys raised"},
		{
			&v1.Bound{Stretch: 8, Refreshes: 20, Refreshed: 1000},
			"curl-refresh is multiplied by 8 in namespace ns; its 1000 refreshed keys ask for more than 20 refreshes a second",
		},
		{&v1.Bound{Stretch: 8}, ""},
		{nil, ""},
	} {
		item := problems()
		item.Result.GetSync().Bound = c.bound
		before := status.Status{Problem: &status.ObjectProblem{Error: "InvalidAnnotation", Message: "over", Since: noon}}
		_, s := planned(t, asking().annotated(annotation.StatusKey, before.String()).object(), item)
		if c.want == "" {
			NewWithT(t).Expect(s.Problem).To(BeNil())
		} else {
			NewWithT(t).Expect(s.Problem).To(HaveField("Message", c.want))
		}
	}
}

// Other results keep the problem.
func TestAProblemOutlastsOtherResults(t *testing.T) {
	s := status.Status{Problem: &status.ObjectProblem{Error: "InvalidAnnotation", Message: "m", Since: noon}}
	_, written := planned(t, asking().annotated(annotation.StatusKey, s.String()).object(), content(6, "b"))
	NewWithT(t).Expect(written.Problem).NotTo(BeNil())
	NewWithT(t).Expect(written.Keys[theKey].SHA256).To(Equal(digest("b")))
}

// An entry gets its explanation once, if there is room.
func TestEntriesAreExplained(t *testing.T) {
	short := failing(status.Entry{}, "BadStatus")
	short.GaveUp, short.Explanation = true, nil
	repeated := failed(6, badStatus, hourAgo, gaveUp, again)
	p, s := planned(t, asking().noted(short).object(), repeated)
	NewWithT(t).Expect(p.Decisions[0].Outcome).To(Equal(plan.Written))
	NewWithT(t).Expect(s.Keys[theKey].Why().HTTPStatus).To(BeEquivalentTo(503))
	expectNothingWritten(t, asking().noted(s.Keys[theKey]).object(), failed(7, badStatus, hourAgo, gaveUp, again))
	full := asking().annotated("example.com/large", strings.Repeat("x", 256<<10-250)).noted(short)
	expectNothingWritten(t, full.object(), repeated)
	shared := asking().noted(short).object() // another installation takes the room
	shared.Others.Keys = map[string]status.Entry{"theirs": {URL: theURL, Annotation: "example.com/other"}}
	shared.Room = len(shared.Status.With(shared.Others).String()) + 10
	expectNothingWritten(t, shared, repeated)
}

// An entry is marked as terminal once.
func TestAFailureThatOnlyAnEditFixesIsMarked(t *testing.T) {
	forbidden := func(r *v1.Result) {
		r.GetFailure().Class = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
		r.GetFailure().Detail = v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST
	}
	short := failing(status.Entry{}, "AddressDenied")
	short.GaveUp, short.Explanation = true, &status.Explanation{HTTPStatus: 503}
	for _, entry := range []status.Entry{{}, short} {
		_, s := planned(t, asking().noted(entry).object(), failed(6, badStatus, hourAgo, gaveUp, forbidden))
		NewWithT(t).Expect(s.Keys[theKey].Why().Terminal).To(BeTrue())
		object := asking().noted(s.Keys[theKey]).object()
		expectNothingWritten(t, object, failed(7, badStatus, hourAgo, gaveUp, forbidden))
	}
}

// A batch for one key has the same outcome in any order.
func TestPlanOfSeveral(t *testing.T) {
	items := []plan.Item{failed(9, timeout), content(8, "c"), failed(7, badStatus), content(6, "b")}
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
	NewWithT(t).Expect(p.Decisions[1].Outcome).To(Equal(plan.Unchanged))
	NewWithT(t).Expect(s.Keys[theKey].Fence).To(Equal(fence(6)))
}

// Another process that repeats an Event emits the same one.
func TestRepeatedEventsAreTheSame(t *testing.T) {
	for name, tt := range map[string]struct {
		object fixture
		item   plan.Item
	}{
		"failure":  {asking(), failed(6, badStatus)},
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
		"two keys of one version":       {func(*v1.Want) {}, true},
		"missing key":                   {func(w *v1.Want) { w.Fingerprint = "none" }, true},
		"another version":               {func(w *v1.Want) { w.ResourceVersion = "8" }, false},
		"another object":                {func(w *v1.Want) { w.Uid = "uid-2" }, false},
		"another status":                {func(w *v1.Want) { w.Status = `{"x":{}}` }, false},
		"to be read first":              {func(w *v1.Want) { w.ReadFirst = true }, false},
		"foreign key":                   {func(w *v1.Want) { w.Fingerprint = "person/Update/x" }, false},
		"same key, another URL":         {func(w *v1.Want) { w.Key, w.Url = theKey, "https://x.example.com" }, false},
		"same key, another fingerprint": {func(w *v1.Want) { w.Key, w.Fingerprint = theKey, "none" }, false},
		"same key":                      {func(w *v1.Want) { w.Key = theKey }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o, ok := decoder().FromWants(second(tt.change))
			g.Expect(ok).To(Equal(tt.want))
			if ok {
				g.Expect(o).To(And(HaveField("UID", BeEquivalentTo("uid-1")), HaveField("ResourceVersion", "7"),
					HaveField("Freshness", plan.FromWant)))
			}
		})
	}
	for name, change := range map[string]func(*v1.Result){
		"no version":        func(r *v1.Result) { r.Want.ResourceVersion = "" },
		"unreadable status": func(r *v1.Result) { r.Want.Status = "{" },
		"removal":           func(r *v1.Result) { r.Outcome = &v1.Result_Sync{Sync: &v1.Sync{Remove: true}} },
	} {
		item := content(6, "a")
		change(item.Result)
		_, ok := decoder().FromWants([]plan.Item{item})
		NewWithT(t).Expect(ok).To(BeFalse(), name)
	}
}

func TestAssumedObject(t *testing.T) {
	item := content(6, "a")
	item.Result.Want.Status = (status.Status{Keys: map[string]status.Entry{theKey: wrote("a")}}).String()
	o, _ := decoder().FromWants([]plan.Item{item})
	p, _ := plan.Planner{}.Plan(o, plan.Memory{}, []plan.Item{item})
	NewWithT(t).Expect(p.Decisions[0].Outcome).To(Equal(plan.Unchanged), "the same body of a key that is ours")
	item.Result.Want.Fingerprint = "none"
	o, _ = decoder().FromWants([]plan.Item{item})
	p, _ = plan.Planner{}.Plan(o, plan.Memory{}, []plan.Item{item})
	NewWithT(t).Expect(p.Values[theKey]).NotTo(BeNil(), "the same body for a missing key")
}
