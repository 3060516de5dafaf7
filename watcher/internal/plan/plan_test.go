package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
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
	return func(e *status.Entry) { e.CheckedFingerprint = owner.Fingerprint }
}

func oldURL(e *status.Entry)      { e.URL = "https://old" }
func fromHistory(e *status.Entry) { e.URL = "" }

func fails(reason string) func(*status.Entry) { return func(e *status.Entry) { e.Error = reason } }

// wanted returns a want for url at sequence 7.
func wanted(change ...func(*wantindex.Want)) *wantindex.Want {
	w := wantindex.FromWant(&v1.Want{Uid: "uid", Url: url, Epoch: epoch}, epoch, 7, time.Unix(0, 0))
	for _, c := range change {
		c(&w)
	}
	return &w
}

func at(seq uint64) func(*wantindex.Want) {
	return func(w *wantindex.Want) { w.Fence.Seq = seq }
}

func drift(f string) func(*wantindex.Want) { return func(w *wantindex.Want) { w.Fingerprint = f } }
func bodyLost(w *wantindex.Want)           { w.Finding = wantindex.BodyLost }
func lost(w *wantindex.Want)               { w.Finding = wantindex.TimerLost }
func resolved(w *wantindex.Want)           { w.Answered = true }
func refreshes(w *wantindex.Want)          { w.Refreshes = true }
func now(value string) func(*wantindex.Want) {
	return func(w *wantindex.Want) { w.Now = value }
}
func otherRequest(w *wantindex.Want)          { w.RequestHash = [16]byte{1} }
func asking(r annotation.Request) func(*call) { return func(c *call) { c.object.Request = r } }

// ruled adds a rule, and byRules marks a body that meets it.
func ruled(r *annotation.Request) { r.Rules = map[string]rule.Set{"k": {Expect: []string{"true"}}} }
func byRules(e *status.Entry)     { e.Rules = rule.Set{Expect: []string{"true"}}.Hash() }

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
	p := plan.Make(c.object, c.wants, epoch)
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
		add("of:"+w.Fingerprint, w.Fingerprint != "")
		add(fmt.Sprint("last:", w.Last), w.Last > 0)
	}
	for _, n := range p.Notices {
		add(n.Reason+":"+n.Key, true)
	}
	add("retract:"+strings.Join(p.Retract, ","), len(p.Retract) > 0)
	add("remove:"+strings.Join(p.Remove, ","), len(p.Remove) > 0)
	add("inSync:"+strings.Join(p.InSync, ","), len(p.InSync) > 0)
	add("resolved:"+strings.Join(p.Answered, ","), len(p.Answered) > 0)
	return strings.Join(words, " ")
}

func TestPlanOfOneKey(t *testing.T) {
	t.Parallel()
	with := func(change func(*annotation.Request)) func(*call) {
		return func(c *call) { change(&c.object.Request) }
	}
	ofEpoch1 := new(wantindex.FromWant(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))
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
		about(foreign, written(func(e *status.Entry) { e.CheckedFingerprint = foreign.Unsettled() }), wanted(resolved)),
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
			Problems: []annotation.Problem{{Key: "k", Text: "bad", Rejected: true}}, Rejected: []string{"k"},
		})), "InvalidAnnotation:k retract:k")
	check("with a problem", about(none, nil, nil,
		with(func(r *annotation.Request) { r.Problems = []annotation.Problem{{Text: "odd"}} })), "new InvalidAnnotation:")
	check("pair removed", about(ours, written(), wanted(resolved), asking(annotation.Request{Present: true})),
		"retract:k remove:k")
	check("pair removed, missing in the stream", about(ours, written(), nil, asking(annotation.Request{})), "remove:k")
	check("pair removed before the first write", about(none, nil, wanted(), asking(annotation.Request{})), "retract:k")
}

func TestPlanOfManyKeys(t *testing.T) {
	t.Parallel()
	c := about(none, nil, nil, asking(annotation.Request{Present: true, Pairs: []annotation.Pair{
		{Key: "a", URL: url}, {Key: "b", URL: url}, {Key: "taken", URL: url},
	}}))
	c.object.Owners = map[string]annotation.Ownership{"a": none, "b": none, "taken": foreign}
	c.object.Status = with(c.object.Status, "gone", *written())
	c.wants["gone"], c.wants["taken"] = *wanted(), *wanted()
	p := plan.Make(c.object, c.wants, epoch)
	var published []string
	for _, w := range p.Publish {
		published = append(published, w.Key)
	}
	g := NewWithT(t)
	g.Expect(published).To(ConsistOf("a", "b"))
	g.Expect(p.Retract).To(ConsistOf("gone", "taken"))
	g.Expect(p.Remove).To(ConsistOf("gone"))
}

func TestAllWantsOfADeletedObjectAreRetracted(t *testing.T) {
	t.Parallel()
	p := plan.Make(nil, map[string]wantindex.Want{"b": *wanted(), "a": *wanted()}, epoch)
	NewWithT(t).Expect(p).To(Equal(plan.Plan{Retract: []string{"a", "b"}}))
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
		p := plan.Make(c.object, nil, epoch)
		NewWithT(t).Expect(p.Publish).To(HaveExactElements(And(HaveField("GetEpoch()", tt.want),
			HaveField("After", tt.held))), name)
	}
}

func laterStream(e *status.Entry) { e.Fence.Epoch = epoch + 5 }

// seen is when the watch delivered the object.
var seen = time.Unix(100, 0).UTC()

func delivered(c *call) { c.object.SeenAt = seen }

// The writer reads the rest itself.
func TestReconcileNamesTheObject(t *testing.T) {
	t.Parallel()
	c := about(ours, written(), nil, asking(annotation.Request{}), delivered)
	for _, remove := range []bool{false, true} {
		want := &v1.Result{
			Want:       &v1.Want{Namespace: "ns", Name: "cm", Key: status.ObjectKey, Uid: "uid", ResourceVersion: "5"},
			ObservedAt: timestamppb.New(seen), Outcome: &v1.Result_Sync{Sync: &v1.Sync{Remove: remove}},
		}
		got := plan.Sync(c.object, remove)
		NewWithT(t).Expect(proto.Equal(got, want)).To(BeTrue(), "%v", got)
	}
}
