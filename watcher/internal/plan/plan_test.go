package plan_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	epoch = 1000
	url   = "https://example.com"
)

var (
	sum  = strings.Repeat("ab", 32)
	sum2 = strings.Repeat("cd", 32)

	ours    = annotation.Ownership{State: annotation.Ours}
	none    = annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	unknown = annotation.Ownership{State: annotation.Unknown, Fingerprint: "unknown"}
	foreign = annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl/Update/T1"}
	later   = annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl/Update/T2"}
)

// written returns the entry of a key with the body of url, written for sequence 7.
func written(change ...func(*status.Entry)) *status.Entry {
	e := &status.Entry{URL: url, SHA256: sum, Fence: status.Fence{Epoch: epoch, Seq: 7}}
	for _, c := range change {
		c(e)
	}
	return e
}

// on sets the uid of the object that the entry was written on.
func on(uid string) func(*status.Entry) { return func(e *status.Entry) { e.UIDMark = uid } }

// found marks the value of a foreign owner as right.
func found(owner annotation.Ownership) func(*status.Entry) {
	return func(e *status.Entry) { e.Drift = owner.Fingerprint }
}

func oldURL(e *status.Entry)      { e.URL = "https://old" }
func fromHistory(e *status.Entry) { e.URL = "" }

func fails(reason string) func(*status.Entry) { return func(e *status.Entry) { e.Error = reason } }

// wanted returns a want for url at sequence 7.
func wanted(change ...func(*wantindex.Want)) *wantindex.Want {
	w := wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: epoch}, epoch, 7, time.Unix(0, 0))
	for _, c := range change {
		c(&w)
	}
	return &w
}

func at(seq uint64) func(*wantindex.Want)     { return func(w *wantindex.Want) { w.Fence.Seq = seq } }
func drift(f string) func(*wantindex.Want)    { return func(w *wantindex.Want) { w.Drift = f } }
func bodyLost(w *wantindex.Want)              { w.Finding = wantindex.BodyLost }
func lost(w *wantindex.Want)                  { w.Finding = wantindex.TimerLost }
func resolved(w *wantindex.Want)              { w.Resolved = true }
func refreshes(w *wantindex.Want)             { w.Refreshes = true }
func now(value string) func(*wantindex.Want)  { return func(w *wantindex.Want) { w.Now = value } }
func otherRequest(w *wantindex.Want)          { w.Digest = [16]byte{1} }
func asking(r annotation.Request) func(*call) { return func(c *call) { c.object.Request = r } }

// ruled adds a rule, and byRules marks a body that meets it.
func ruled(r *annotation.Request) { r.Rules = map[string]rule.Set{"k": {Expect: []string{"true"}}} }
func byRules(e *status.Entry)     { e.Rules = rule.Set{Expect: []string{"true"}}.Digest() }

// call has an object with one key, k.
type call struct {
	object *annotated.Object
	wants  map[string]wantindex.Want
}

// with adds an entry.
func with(e annotated.Entries, key string, entry status.Entry) annotated.Entries {
	s := e.Status()
	s.Keys[key] = entry
	return annotated.EntriesOf(s, nil)
}

func about(owner annotation.Ownership, entry *status.Entry, want *wantindex.Want, change ...func(*call)) call {
	c := call{wants: map[string]wantindex.Want{}, object: &annotated.Object{
		Meta: informer.Meta{
			NamespacedName: types.NamespacedName{Namespace: "ns", Name: "cm"}, UID: "uid", Version: 5,
		},
		Request:         annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: url}}},
		Owners:          map[string]annotation.Ownership{"k": owner},
		MainAnnotatedAt: time.Unix(1, 0),
	}}
	if entry != nil {
		c.object.Status = with(c.object.Status, "k", *entry)
	}
	if want != nil {
		c.wants["k"] = *want
	}
	for _, change := range change {
		change(&c)
	}
	return c
}

// decide summarizes a plan: cause and properties of its only want, conditions and keys.
func (c call) decide(t *testing.T) string {
	t.Helper()
	p := plan.For(c.object, c.wants, epoch)
	var words []string
	add := func(word string, when bool) {
		if when {
			words = append(words, word)
		}
	}
	g := NewWithT(t)
	g.Expect(len(p.Publish)).To(BeNumerically("<=", 1), "wants for one key")
	for _, w := range p.Publish {
		g.Expect(w.Want).To(And(HaveField("Uid", "uid"), HaveField("ResourceVersion", "5"),
			HaveField("Epoch", BeNumerically(">=", epoch)), HaveField("Url", Not(BeEmpty()))))
		if w.Cached != nil {
			g.Expect(w.Cached).To(HaveField("Sha256", sum))
		}
		add(pipeline.CauseName(w.Cause), true)
		add("cached", w.Cached != nil)
		add("readFirst", w.ReadFirst)
		add("of:"+w.Drift, w.Drift != "")
		add(fmt.Sprint("last:", w.Last), w.Last > 0)
	}
	for _, n := range p.Notices {
		add(n.Reason+":"+n.Key, true)
	}
	add("retract:"+strings.Join(p.Retract, ","), len(p.Retract) > 0)
	add("remove:"+strings.Join(p.Remove, ","), len(p.Remove) > 0)
	add("inSync:"+strings.Join(p.InSync, ","), len(p.InSync) > 0)
	add("resolved:"+strings.Join(p.Resolved, ","), len(p.Resolved) > 0)
	return strings.Join(words, " ")
}

func TestMakeOneKey(t *testing.T) {
	t.Parallel()
	with := func(change func(*annotation.Request)) func(*call) {
		return func(c *call) { change(&c.object.Request) }
	}
	ofEpoch1 := new(wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))
	garbage := new(wantindex.Unreadable(epoch, 3, time.Time{}))
	failed, failedAt7 := &status.Entry{Error: "Timeout"},
		&status.Entry{Error: "Timeout", Fence: status.Fence{Epoch: epoch, Seq: 7}}
	restored := func(e *status.Entry) { e.Fence = status.Fence{Epoch: 5000, Seq: 99} }
	invalid := func(c *call) { c.object.Invalid = errors.New("bad") }
	suspended := with(func(r *annotation.Request) { r.Suspended = true })
	check := func(name string, c call, want string) {
		t.Helper()
		NewWithT(t).Expect(c.decide(t)).To(Equal(want), name)
	}
	check("new", about(none, nil, nil), "new")
	check("waiting", about(none, nil, wanted()), "")
	check("another url", about(none, nil, wanted(otherRequest)), "changed last:7")
	check("written, then another url", about(ours, written(oldURL), wanted(otherRequest, at(8))), "changed last:8")
	check("another value of curl-now", about(none, nil, wanted(now("1"))), "now last:7")
	check("found lost", about(none, nil, wanted(lost)), "audit last:7")

	check("failing", about(none, failedAt7, wanted()), "resolved:k")
	check("failing, missing in the stream", about(none, failed, nil), "new")
	check("failing, found lost", about(none, failed, wanted(lost)), "audit last:7")
	check("immutable with another URL, found lost", about(none, &status.Entry{Error: "Immutable"}, wanted(lost)),
		"audit last:7")
	check("written, later attempts fail", about(ours, written(fails("Timeout")), wanted(resolved)), "")
	check("the same, missing in the stream", about(ours, written(fails("Timeout")), nil), "new")
	check("the same, found lost", about(ours, written(fails("Timeout")), wanted(lost, resolved)), "audit last:7")

	check("in sync", about(ours, written(), wanted(resolved)), "")
	check("in sync for the first time", about(ours, written(), wanted()), "inSync:k resolved:k")
	check("in sync, by an older result", about(ours, written(), wanted(at(8), drift("none"))), "inSync:k")
	check("in sync, missing in the stream", about(ours, written(), nil), "new cached")
	check("in sync, other interval",
		about(ours, written(), wanted(resolved), with(func(r *annotation.Request) { r.Refresh = time.Minute })),
		"changed cached last:7")
	check("in sync, with that digest",
		about(ours, written(), wanted(resolved),
			with(func(r *annotation.Request) { r.SHA256 = map[string]string{"k": sum} })), "changed cached last:7")
	check("another digest requested",
		about(ours, written(), wanted(resolved),
			with(func(r *annotation.Request) { r.SHA256 = map[string]string{"k": sum2} })), "changed last:7")
	check("in sync, with that digest from the history",
		about(ours, written(fromHistory), wanted(resolved),
			with(func(r *annotation.Request) { r.SHA256 = map[string]string{"k": sum} })), "changed cached last:7")
	check("from the history, and no longer pinned", about(ours, written(fromHistory), wanted(resolved, otherRequest)),
		"changed last:7")
	check("other rules", about(ours, written(), wanted(resolved), with(ruled)), "changed last:7")
	check("other rules, missing in the stream", about(ours, written(), nil, with(ruled)), "new")
	check("no rules any more", about(ours, written(byRules), nil), "new")
	check("by these rules, missing in the stream", about(ours, written(byRules), nil, with(ruled)), "new cached")
	check("in sync, to be fetched now",
		about(ours, written(), wanted(resolved), with(func(r *annotation.Request) { r.Now = "1" })), "now last:7")
	check("refreshed, but no timer", about(ours, written(), wanted(resolved, lost, refreshes)), "audit cached last:7")
	check("held, the last body is lost", about(ours, written(), wanted(resolved, bodyLost, refreshes)), "audit last:7")
	check("refreshed, with its timer", about(ours, written(), wanted(resolved, refreshes)), "")
	check("fetched once, no timer", about(ours, written(), wanted(resolved, lost)), "")
	check("want of another epoch", about(ours, written(), ofEpoch1), "changed cached last:3 resolved:k")
	check("want of another epoch, no result", about(none, nil, ofEpoch1), "changed last:3")
	check("garbage", about(none, nil, garbage), "changed last:3")

	check("deleted", about(none, written(), wanted(resolved)), "drift of:none last:7 Drifted:k")
	check("deleted, missing in the stream", about(none, written(), nil), "drift of:none Drifted:k")
	check("deleted, being repaired", about(none, written(), wanted(at(8), drift("none"))), "Drifted:k")
	check("deleted again after a repair", about(none, written(), wanted(resolved, drift("none"))),
		"drift of:none last:7 Drifted:k")
	check("deleted, the repair fails", about(none, written(fails("Timeout")), wanted(resolved, drift("none"))),
		"Drifted:k")
	check("deleted, the repair is lost", about(none, written(), wanted(at(8), drift("none"), lost)),
		"audit of:none last:8 Drifted:k")
	check("deleted, to be fetched now", about(none, written(), wanted(at(8), drift("none"), now("1"))),
		"now of:none last:8 Drifted:k")
	check("deleted, being repaired for another url", about(none, written(), wanted(at(8), drift("none"), otherRequest)),
		"drift of:none last:8 Drifted:k")
	check("deleted, and to be fetched now", about(none, written(), wanted(resolved, now("1"))),
		"drift of:none last:7 Drifted:k")
	check("deleted, and found lost", about(none, written(), wanted(resolved, lost)), "drift of:none last:7 Drifted:k")
	check("deleted, another fetch in flight", about(none, written(), wanted(at(8))), "drift of:none last:8 Drifted:k")
	check("deleted, managedFields empty",
		about(none, written(), wanted(resolved), func(c *call) { c.object.MainAnnotatedAt = time.Time{} }),
		"drift readFirst of:none last:7 Drifted:k")
	check("edited", about(foreign, written(), wanted(resolved)), "drift readFirst of:kubectl/Update/T1~ last:7 Drifted:k")
	check("edited, being repaired", about(foreign, written(), wanted(at(8), drift("kubectl/Update/T1"))), "Drifted:k")
	check("edited again, being repaired", about(later, written(), wanted(at(8), drift("kubectl/Update/T1"))), "Drifted:k")
	check("edited, found right", about(foreign, written(found(foreign)), wanted(resolved, drift("kubectl/Update/T1"))),
		"inSync:k")
	check("edited, found right within a second that may not be over",
		about(foreign, written(func(e *status.Entry) { e.Drift = foreign.Unsettled() }), wanted(resolved)),
		"drift readFirst of:kubectl/Update/T1 last:7")
	check("edited, found right, then ours again", about(ours, written(found(foreign)), wanted(resolved)), "")
	check("edited again after that", about(later, written(found(foreign)), wanted(resolved)),
		"drift readFirst of:kubectl/Update/T2~ last:7 Drifted:k")
	check("edited while another url was requested", about(foreign, written(oldURL), wanted(otherRequest)),
		"changed readFirst last:7 resolved:k")
	check("managedFields emptied", about(unknown, written(), wanted(resolved)), "drift readFirst of:unknown last:7")
	check("managedFields emptied, found right", about(unknown, written(found(unknown)), wanted(resolved)), "")
	check("without managedFields", about(unknown, nil, nil), "new readFirst")
	check("backup restored", about(foreign, written(restored), nil), "drift readFirst of:kubectl/Update/T1~ Drifted:k")
	check("backup of another cluster restored, being repaired",
		about(foreign, written(restored), wanted(drift("kubectl/Update/T1"))), "Drifted:k")

	check("copied with its status", about(foreign, written(on("another")), nil),
		"new readFirst of:kubectl/Update/T1")
	check("copied without its value", about(none, written(on("another")), nil), "new readFirst of:none")
	check("copied, ours according to managedFields", about(ours, written(on("another")), nil), "new readFirst")
	check("copied, being fetched", about(foreign, written(on("another")), wanted()), "")
	check("copied, the fetch is lost", about(foreign, written(on("another")), wanted(lost)),
		"audit readFirst of:kubectl/Update/T1 last:7")
	check("a copy replaced our status", about(foreign, written(on("another")), wanted(resolved)), "drift readFirst last:7")
	check("a copy replaced our status and requests another url",
		about(foreign, written(on("another")), wanted(resolved, otherRequest)),
		"changed readFirst of:kubectl/Update/T1 last:7")
	check("a copy of a failure, not ours", about(foreign, &status.Entry{Error: "Timeout", UIDMark: "another"}, nil),
		"KeyExists:k")
	check("not copied", about(ours, written(on("uid")), wanted(resolved)), "")

	check("replaced without our status", about(none, nil, wanted(resolved)), "drift of:none last:7 Drifted:k")
	check("status removed, value kept", about(ours, nil, wanted(resolved)), "drift last:7")
	check("replaced, requests another url", about(none, nil, wanted(resolved, otherRequest)), "changed last:7")
	check("status removed, missing in the stream", about(ours, nil, nil), "new")

	check("foreign", about(foreign, nil, nil), "KeyExists:k")
	check("foreign, with a want", about(foreign, nil, wanted()), "KeyExists:k retract:k")
	check("foreign, after a failed fetch", about(foreign, failed, nil), "KeyExists:k")

	check("suspended", about(none, nil, wanted(), suspended), "retract:k")
	check("suspended and invalid",
		about(none, nil, nil, func(c *call) { c.object.Request.Suspended, c.object.Invalid = true, errors.New("bad") }), "")
	check("suspended and drifted", about(none, written(), nil, suspended), "")
	check("invalid", about(ours, written(), wanted(resolved), asking(annotation.Request{}), invalid),
		"InvalidAnnotation: retract:k")
	check("pair invalid", about(ours, written(), wanted(resolved),
		asking(annotation.Request{
			Present:  true,
			Problems: []annotation.Problem{{Key: "k", Text: "bad", Skipped: true}}, Rejected: []string{"k"},
		})), "InvalidAnnotation:k retract:k")
	check("with a problem", about(none, nil, nil,
		with(func(r *annotation.Request) { r.Problems = []annotation.Problem{{Text: "odd"}} })), "new InvalidAnnotation:")
	check("pair removed", about(ours, written(), wanted(resolved), asking(annotation.Request{Present: true})),
		"retract:k remove:k")
	check("pair removed, missing in the stream", about(ours, written(), nil, asking(annotation.Request{})), "remove:k")
	check("pair removed before the first write", about(none, nil, wanted(), asking(annotation.Request{})), "retract:k")
}

func TestMakeManyKeys(t *testing.T) {
	t.Parallel()
	c := about(none, nil, nil, asking(annotation.Request{Present: true, Pairs: []annotation.Pair{
		{Key: "a", URL: url}, {Key: "b", URL: url}, {Key: "taken", URL: url},
	}}))
	c.object.Owners = map[string]annotation.Ownership{"a": none, "b": none, "taken": foreign}
	c.object.Status = with(c.object.Status, "gone", *written())
	c.wants["gone"], c.wants["taken"] = *wanted(), *wanted()
	p := plan.For(c.object, c.wants, epoch)
	var published []string
	for _, w := range p.Publish {
		published = append(published, w.Key)
	}
	g := NewWithT(t)
	g.Expect(published).To(ConsistOf("a", "b"))
	g.Expect(p.Retract).To(ConsistOf("gone", "taken"))
	g.Expect(p.Remove).To(ConsistOf("gone"))
}

func TestMakeRetractsAllWantsOfADeletedObject(t *testing.T) {
	t.Parallel()
	p := plan.For(nil, map[string]wantindex.Want{"b": *wanted(), "a": *wanted()}, epoch)
	NewWithT(t).Expect(p).To(Equal(plan.Plan{Retract: []string{"a", "b"}}))
}

func TestWantCarriesTheStatusOfItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries   map[string]status.Entry
		carried   bool
		readFirst bool
	}{
		"its own entry":       {map[string]status.Entry{"k": {Error: "Timeout"}}, true, false},
		"none":                {nil, false, false},
		"another key's entry": {map[string]status.Entry{"other": {Error: "Timeout"}}, false, true},
		"several entries":     {map[string]status.Entry{"k": {Error: "Timeout"}, "other": {Error: "Timeout"}}, false, true},
		"too long": {
			map[string]status.Entry{"k": {ErrorURL: strings.Repeat("x", 32<<10+1), Error: "Timeout"}},
			false, true,
		},
	} {
		call := about(none, nil, nil)
		call.object.Status = annotated.EntriesOf(status.Status{Keys: c.entries}, nil)
		w := plan.For(call.object, nil, epoch).Publish[0]
		carried := w.Status != ""
		NewWithT(t).Expect(carried).To(Equal(c.carried), name)
		NewWithT(t).Expect(w.ReadFirst).To(Equal(c.readFirst), name)
	}
}

func TestANoticeKeepsItsOccurrenceWhileItLasts(t *testing.T) {
	t.Parallel()
	occurrence := func(c call) string {
		t.Helper()
		p := plan.For(c.object, c.wants, epoch)
		NewWithT(t).Expect(p.Notices).To(HaveLen(1))
		return p.Notices[0].Occurrence
	}
	invalid := func(text string, changed int64) call {
		return about(none, nil, nil,
			func(c *call) { c.object.Invalid, c.object.MainAnnotatedAt = errors.New(text), time.Unix(changed, 0) })
	}
	next := func(e *status.Entry) { e.Fence.Seq = 9 }
	problem := func(key, rule, text string) call {
		return about(none, nil, nil, asking(annotation.Request{
			Present: true, Problems: []annotation.Problem{{Key: key, Rule: rule, Text: text}},
		}))
	}
	for name, c := range map[string]struct {
		a, b call
		same bool
	}{
		"pair invalid, others changed":  {problem("k", "ftp", "pair 1"), problem("k", "ftp", "pair 2"), true},
		"pair invalid, another rule":    {problem("k", "ftp", "pair 1"), problem("k", "user", "pair 1"), false},
		"pair invalid, another key":     {problem("k", "ftp", "pair 1"), problem("l", "ftp", "pair 1"), false},
		"not about a pair, other words": {problem("", "rule", "one"), problem("", "rule", "two"), false},
		"invalid, edited elsewhere":     {invalid("bad", 1), invalid("bad", 2), true},
		"invalid in another way":        {invalid("bad", 1), invalid("worse", 1), false},
		"foreign, written again":        {about(foreign, nil, nil), about(later, nil, nil), true},
		"drifted, written again":        {about(foreign, written(), nil), about(later, written(), nil), true},
		"drifted again after a repair":  {about(none, written(), nil), about(none, written(next), nil), false},
	} {
		same := occurrence(c.a) == occurrence(c.b)
		NewWithT(t).Expect(same).To(Equal(c.same), name)
	}
}

// The writer puts a foreign key into the status.
func TestOccupiedKeysAreReportedUntilTheStatusHasThem(t *testing.T) {
	t.Parallel()
	entry := func(reason, url, object string) *status.Entry {
		return &status.Entry{Error: reason, ErrorURL: url, UIDMark: object}
	}
	for name, c := range map[string]struct {
		call
		want bool
	}{
		"not in the status":         {about(foreign, nil, nil), true},
		"in the status":             {about(foreign, entry("KeyExists", url, "uid"), nil), false},
		"without a uid":             {about(foreign, entry("KeyExists", url, ""), nil), false},
		"for another URL":           {about(foreign, entry("KeyExists", url+"/other", "uid"), nil), true},
		"in the status of another":  {about(foreign, entry("KeyExists", url, "another"), nil), true},
		"for another reason":        {about(foreign, entry("Timeout", url, "uid"), nil), true},
		"in the status, free again": {about(none, entry("KeyExists", url, "uid"), nil), false},
		"while suspended":           {about(foreign, nil, nil, func(c *call) { c.object.Request.Suspended = true }), false},
	} {
		NewWithT(t).Expect(plan.For(c.object, c.wants, epoch).AskWriter).To(Equal(c.want), name)
	}
}

// Results of a want must be newer than the object's fence, whatever happened to the stream.
func TestEpoch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		entry *status.Entry
		want  int64
		held  status.Fence
	}{
		"nothing held":      {nil, epoch, status.Fence{}},
		"of this stream":    {written(fails("Timeout")), epoch, status.Fence{Epoch: epoch, Seq: 7}},
		"of a later stream": {written(fails("Timeout"), laterStream), epoch + 5, status.Fence{Epoch: epoch + 5, Seq: 7}},
		"of another object": {written(on("another"), laterStream), epoch, status.Fence{}},
	} {
		c := about(ours, tt.entry, nil)
		p := plan.For(c.object, nil, epoch)
		NewWithT(t).Expect(p.Publish).To(HaveExactElements(And(HaveField("GetEpoch()", tt.want),
			HaveField("After", tt.held))), name)
	}
}

func laterStream(e *status.Entry) { e.Fence.Epoch = epoch + 5 }

// seen is when the watch delivered the object.
var seen = time.Unix(100, 0).UTC()

func delivered(c *call) { c.object.SeenAt = seen }

func TestFieldsOfAWant(t *testing.T) {
	t.Parallel()
	base := func(change func(*v1.Want)) *v1.Want {
		w := &v1.Want{
			Namespace: "ns", Name: "cm", Key: "k", Uid: "uid", ResourceVersion: "5", Url: url, Epoch: epoch,
			ObservedAt: timestamppb.New(seen),
		}
		change(w)
		return w
	}
	request := func(change func(*annotation.Request)) func(*call) {
		return func(c *call) { change(&c.object.Request) }
	}
	asked := timestamppb.New(seen)
	held := status.Status{Keys: map[string]status.Entry{"k": *written()}}
	for name, tt := range map[string]struct {
		call
		want *v1.Want
	}{
		"new": {about(none, nil, nil, delivered), base(func(w *v1.Want) { w.Cause, w.AskedAt = v1.Cause_CAUSE_NEW, asked })},
		"changed, with options": {
			about(none, nil, wanted(otherRequest), delivered, request(func(r *annotation.Request) {
				r.Refresh, r.Now, r.SHA256 = time.Minute, "1", map[string]string{"k": sum}
			})),
			base(func(w *v1.Want) {
				w.Cause, w.AskedAt, w.Refresh, w.Now, w.Sha256 = v1.Cause_CAUSE_CHANGED, asked, durationpb.New(time.Minute), "1",
					sum
			}),
		},
		"now": {
			about(none, nil, wanted(now("1")), delivered),
			base(func(w *v1.Want) { w.Cause, w.AskedAt = v1.Cause_CAUSE_NOW, asked }),
		},
		"found lost": {about(none, nil, wanted(lost), delivered), base(func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_AUDIT })},
		"drifted": {
			about(none, nil, wanted(resolved), delivered),
			base(func(w *v1.Want) { w.Cause, w.Drift = v1.Cause_CAUSE_DRIFT, "none" }),
		},
		"in sync": {about(ours, written(), nil, delivered), base(func(w *v1.Want) {
			w.Cause, w.AskedAt, w.Status = v1.Cause_CAUSE_NEW, asked, held.String()
			w.Cached = &v1.Cached{Sha256: sum}
		})},
	} {
		p := plan.For(tt.object, tt.wants, epoch)
		NewWithT(t).Expect(p.Publish).To(HaveLen(1), name)
		NewWithT(t).Expect(proto.Equal(p.Publish[0].Want, tt.want)).To(BeTrue(), "%s: %v", name, p.Publish)
	}
}

// The writer reads the rest itself.
func TestReconcileNamesTheObject(t *testing.T) {
	t.Parallel()
	c := about(ours, written(), nil, asking(annotation.Request{}), delivered)
	for _, remove := range []bool{false, true} {
		want := &v1.Result{
			Want:       &v1.Want{Namespace: "ns", Name: "cm", Key: status.ObjectKey, Uid: "uid", ResourceVersion: "5"},
			ObservedAt: timestamppb.New(seen), Outcome: &v1.Result_Reconcile{Reconcile: &v1.Reconcile{Remove: remove}},
		}
		got := plan.Reconcile(c.object, remove)
		NewWithT(t).Expect(proto.Equal(got, want)).To(BeTrue(), "%v", got)
	}
}

// A fixed mistake is reported once more.
func TestProblemsAreReportedUntilTheStatusHasThem(t *testing.T) {
	t.Parallel()
	invalid := func(c *call) { c.object.Invalid = errors.New("bad") }
	refused := asking(annotation.Request{
		Present:  true,
		Problems: []annotation.Problem{{Key: "k", Text: "bad", Skipped: true}}, Rejected: []string{"k"},
	})
	has := func(message string) func(*call) {
		return func(c *call) {
			problem := &status.Problem{Error: "InvalidAnnotation", Message: message}
			c.object.Status = annotated.EntriesOf(status.Status{Problem: problem}, nil)
		}
	}
	for name, tt := range map[string]struct {
		call
		problem string
		report  bool
	}{
		"invalid":                  {about(none, nil, nil, invalid), "bad", true},
		"invalid, in the status":   {about(none, nil, nil, invalid, has("bad")), "bad", false},
		"a pair":                   {about(none, nil, nil, refused), "bad", true},
		"a pair, in the status":    {about(none, nil, nil, refused, has("bad")), "bad", false},
		"another is in the status": {about(none, nil, nil, refused, has("worse")), "bad", true},
		"fixed":                    {about(none, nil, nil, has("bad")), "", true},
		"nothing":                  {about(none, nil, nil), "", false},
	} {
		p := plan.For(tt.object, tt.wants, epoch)
		NewWithT(t).Expect(p.Problem).To(Equal(tt.problem), name)
		NewWithT(t).Expect(p.AskWriter).To(Equal(tt.report), name)
	}
}

func TestNotesOfNotices(t *testing.T) {
	t.Parallel()
	manager := annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl-edit/Update/2026-01-02T12:00:00Z"}
	hashed := annotation.Ownership{State: annotation.Foreign, Fingerprint: "0123456789abcdef"}
	odd := annotation.Request{Present: true, Problems: []annotation.Problem{{Text: "odd"}}}
	for _, c := range []struct {
		want string
		call
	}{
		{"bad", about(none, nil, nil, func(c *call) { c.object.Invalid = errors.New("bad") })},
		{"odd", about(none, nil, nil, asking(odd))},
		{"key k was removed; it is fetched again", about(none, written(), nil)},
		{"key k was changed by field manager kubectl-edit; it is fetched again", about(manager, written(), nil)},
		{"key k was changed by somebody else; it is fetched again", about(hashed, written(), nil)},
		{
			"key k already exists and is not managed by curl-me-that; " +
				"remove it from the ConfigMap, or choose another key " +
				"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#3]",
			about(foreign, nil, nil),
		},
	} {
		NewWithT(t).Expect(plan.For(c.object, c.wants, epoch).Notices).To(HaveExactElements(
			And(HaveField("Note", c.want), HaveField("Occurrence", Not(BeEmpty())))))
	}
	NewWithT(t).Expect(plan.For(about(foreign, nil, nil).object, nil, epoch).Foreign).To(Equal([]string{"k", url}))
}

// A finding of the audit does not count.
func TestNeedsWant(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call
		want bool
	}{
		"in sync":     {about(ours, written(), wanted(resolved)), false},
		"found lost":  {about(none, nil, wanted(lost)), false},
		"another URL": {about(none, nil, wanted(otherRequest)), true},
		"removed":     {about(none, written(), wanted(resolved)), true},
		"of another stream": {about(ours, written(),
			new(wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))), true},
	} {
		got := plan.NeedsWant(tt.object, tt.object.Request.Pairs[0], tt.wants["k"], epoch)
		NewWithT(t).Expect(got).To(Equal(tt.want), name)
	}
}

// maxKeyBytes is the maximum memory of a key that is alone in its object.
const maxKeyBytes = 1300

func TestAKeyTakesLittleMemory(t *testing.T) {
	const objects = 20_000
	grammar, err := annotation.New(annotation.Defaults())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	reader := &annotated.Reader{Grammar: grammar, Now: time.Now}
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	seen := map[types.NamespacedName]*annotated.Object{}
	index := wantindex.NewIndex()
	for n := range objects {
		m := storedObject(n)
		o := reader.Read(m)
		seen[o.NamespacedName] = o
		p := &v1.Want{
			Namespace: o.Namespace, Name: o.Name, Key: "mydata", Uid: string(o.UID), Url: o.Request.Pairs[0].URL,
			ResourceVersion: fmt.Sprint(o.Version), Epoch: epoch,
		}
		index.Put(pipeline.KeyOf(p), wantindex.Of(p, epoch, uint64(n), time.Now()))
	}
	each := (heap() - before) / objects
	t.Logf("%d bytes a key", each)
	NewWithT(t).Expect(each).To(BeNumerically("<=", maxKeyBytes), "bytes a key")
	runtime.KeepAlive(seen)
	runtime.KeepAlive(index)
}

// storedObject returns the metadata of a ConfigMap with one written key.
func storedObject(n int) *metav1.PartialObjectMetadata {
	url := fmt.Sprintf("https://data.example.com/configuration/%d.json", n)
	s := status.Status{Keys: map[string]status.Entry{"mydata": {
		URL: url, SHA256: sum, Size: 1000, ChangedAt: time.Now(),
		UIDMark: "12345678", Fence: status.Fence{Epoch: epoch, Seq: uint64(n)},
	}}}
	fields := metav1.NewFieldsV1(
		`{"f:data":{"f:mydata":{}},"f:metadata":{"f:annotations":{"f:x-kv8s.io/curl-status":{}}}}`)
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprint("namespace-", n%20), Name: fmt.Sprint("configmap-", n),
		UID: types.UID(fmt.Sprintf("12345678-1234-1234-1234-%012d", n)), ResourceVersion: fmt.Sprint(n),
		Annotations: map[string]string{
			annotation.DefaultKey: "mydata=" + url, "x-kv8s.io/" + annotation.RefreshName: "10m",
			annotation.StatusKey: s.String(),
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: annotation.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			Time: &metav1.Time{Time: time.Now()}, FieldsV1: fields,
		}},
	}}
}
