// Package plan compares a ConfigMap with its wants in the stream and decides what the watcher does.
// It has no side effects.
package plan

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Plan lists the actions for one object.
type Plan struct {
	Publish []Want
	// Retract lists the keys whose want a tombstone replaces.
	Retract []string
	// Remove lists the keys with a status that are no longer requested.
	Remove []string
	// Resolved lists the keys whose want has a result in the status.
	Resolved []string
	// InSync lists the keys that hold the requested body, so their want no longer repairs a drift.
	InSync []string
	// Problem and Occupied belong in the status: the mistakes in the annotations, and each foreign
	// key followed by its URL. Report means that the status differs.
	Problem  string
	Occupied []string
	Report   bool
	// Notices become Events.
	Notices []Notice
}

// Want is a want to publish.
type Want struct {
	*v1.Want
	// Last is the sequence of the replaced want (0: none).
	Last uint64
	// After is the fence of the key in the object. Results of the want must be newer.
	After status.Fence
	// Digest is its wantindex.Digest.
	Digest [16]byte
}

// Notice is a state to report to the owner of the object.
type Notice struct {
	Reason string
	// Key is empty for the whole object.
	Key  string
	Note string
	// Occurrence distinguishes this notice from others with the same reason.
	Occurrence string
}

// maxStatusBytes is the maximum size of the status in a want. If it is larger, the writer reads the
// object.
const maxStatusBytes = 32 << 10

// For compares an object with the wants in the stream. A nil object is gone or was never
// annotated.
func For(o *annotated.Object, wants map[string]wantindex.Want, epoch int64) Plan {
	m := &planner{object: o, wants: wants, epoch: epoch}
	switch {
	case o == nil || o.Request.Suspended:
		m.retractAllBut(nil)
	case o.Invalid != nil:
		// A mistake in the text is no reason to remove data.
		m.plan.Notices = append(m.plan.Notices, Notice{
			Reason:     pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION),
			Note:       o.Invalid.Error(),
			Occurrence: o.Invalid.Error(),
		})
		m.retractAllBut(nil)
		m.compareProblem()
	default:
		m.compareProblem()
		m.reportProblems(o.Request.Problems)
		for _, pair := range o.Request.Pairs {
			m.key(pair)
		}
		m.retractAllBut(func(key string) bool { _, requested := o.Request.URL(key); return requested })
		m.plan.Remove = Orphans(o)
	}
	return m.plan
}

// NeedsWant reports whether an object needs a new want for a pair, apart from findings of the audit.
func NeedsWant(o *annotated.Object, pair annotation.Pair, last wantindex.Want, epoch int64) bool {
	last.Finding = wantindex.NothingLost
	m := &planner{object: o, wants: map[string]wantindex.Want{pair.Key: last}, epoch: epoch}
	m.key(pair)
	return len(m.plan.Publish) > 0
}

type planner struct {
	object *annotated.Object
	wants  map[string]wantindex.Want
	epoch  int64
	plan   Plan
	// digest is the wantindex.Digest of the current key's want.
	digest [16]byte
}

// retractAllBut retracts all wants except those of requested keys.
func (m *planner) retractAllBut(requested func(key string) bool) {
	for key := range m.wants {
		if requested == nil || !requested(key) {
			m.plan.Retract = append(m.plan.Retract, key)
		}
	}
	slices.Sort(m.plan.Retract)
}

func (m *planner) compareProblem() {
	m.plan.Problem = m.object.Request.Problem(m.object.Invalid)
	m.plan.Report = m.plan.Problem != m.object.Status.Problem() && m.object.Others[status.ObjectKey] == ""
}

// reportProblems reports mistakes in single annotations and pairs.
func (m *planner) reportProblems(problems []annotation.Problem) {
	for _, problem := range problems {
		occurrence := problem.Text
		if problem.Key != "" { // the text has the number of the pair, which other pairs change
			occurrence = problem.Key + "\x00" + problem.Rule
		}
		reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
		if problem.Adjusted {
			reason = pipeline.ReasonAdjusted
		}
		m.plan.Notices = append(m.plan.Notices, Notice{
			Reason:     reason,
			Key:        problem.Key,
			Note:       problem.Text,
			Occurrence: occurrence,
		})
	}
}

// Orphans returns the keys with a status of this installation that no pair names, sorted. An invalid pair
// still names its key: a mistake in the text is no reason to remove data.
func Orphans(o *annotated.Object) []string {
	if o.Request.Suspended || o.Invalid != nil {
		return nil
	}
	var orphans []string
	for key := range o.Status.Keys() {
		if !o.Request.Names(key) {
			orphans = append(orphans, key)
		}
	}
	return orphans
}

func (m *planner) key(pair annotation.Pair) {
	shown, last := m.object.Shown(pair.Key), m.wants[pair.Key]
	entry, owner, value := shown.Entry, shown.Owner, shown.Value(m.object.Asked(pair))
	have := last.Fence.Seq > 0 // without a sequence, it is unknown whether the stream has the want
	switch {
	case shown.Other != "":
		m.exists(pair.Key, condition.KeyOfOther(pair.Key, shown.Other))
		return
	case value == keystate.Foreign:
		m.occupied(pair, entry)
		return
	}
	w := m.want(pair)
	m.digest = wantindex.Digest(w)
	if value == keystate.Copied {
		m.copied(w, owner, last, have)
		return
	}
	// A fence of another epoch proves nothing: the object was restored from a backup, or the stream was
	// recreated.
	resolved := have && entry.Fence.Epoch == last.Fence.Epoch && entry.Fence.Seq >= last.Fence.Seq
	if resolved && !last.Resolved {
		m.plan.Resolved = append(m.plan.Resolved, pair.Key)
	}
	switch {
	case value == keystate.Drifted:
		m.drifted(w, entry, owner, last, !resolved || entry.Failing())
	case value == keystate.Held && !entry.Failing():
		m.satisfied(w, entry, last, have)
	case last.Resolved && entry == status.Entry{} && last.Digest == m.digest:
		m.replaced(w, owner, last)
	default:
		m.unsatisfied(w, last, have)
	}
}

// unsatisfied handles a key without the requested body, or with failing later attempts.
func (m *planner) unsatisfied(w *v1.Want, last wantindex.Want, have bool) {
	switch {
	case !have:
		m.publish(w, v1.Cause_CAUSE_NEW, last)
	case last.Digest != m.digest:
		m.publish(w, v1.Cause_CAUSE_CHANGED, last)
	case last.Now != w.GetNow():
		m.publish(w, v1.Cause_CAUSE_NOW, last)
	case last.Finding != wantindex.NothingLost:
		m.publish(w, v1.Cause_CAUSE_AUDIT, last)
	}
}

// copied handles a key whose status was written on another object, as after a restore. Only its
// digest can show that the value is ours, so the writer compares it.
func (m *planner) copied(w *v1.Want, owner annotation.Ownership, last wantindex.Want, have bool) {
	w.ReadFirst = true
	if last.Resolved && last.Digest == m.digest { // the copy replaced our status
		m.publish(w, v1.Cause_CAUSE_DRIFT, last)
		return
	}
	w.Drift = owner.Fingerprint
	m.unsatisfied(w, last, have)
}

// occupied handles a foreign key. Only a report informs the writer.
func (m *planner) occupied(pair annotation.Pair, entry status.Entry) {
	m.plan.Occupied = append(m.plan.Occupied, pair.Key, pair.URL)
	reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS)
	if entry.Copied(m.object.UID) || entry.Error != reason || entry.FailingURL() != pair.URL {
		m.plan.Report = true
	}
	m.exists(pair.Key, condition.KeyExists(pair.Key))
}

// exists reports a key that another manager or installation owns. Nothing is fetched for it.
func (m *planner) exists(key, sentence string) {
	m.plan.Notices = append(m.plan.Notices, Notice{
		Reason:     pipeline.Reason(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS),
		Key:        key,
		Note:       sentence + " [" + condition.WhyEmpty(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS) + "]",
		Occurrence: key,
	})
	if _, wanted := m.wants[key]; wanted {
		m.plan.Retract = append(m.plan.Retract, key)
	}
}

// satisfied handles a key that holds the requested body. A missing want is published with the
// cached body, which only starts the refresh timer.
func (m *planner) satisfied(w *v1.Want, entry status.Entry, last wantindex.Want, have bool) {
	cached := &v1.Cached{Sha256: entry.SHA256}
	switch {
	case !have:
		w.Cached = cached
		m.publish(w, v1.Cause_CAUSE_NEW, last)
	case last.Now != w.GetNow():
		m.publish(w, v1.Cause_CAUSE_NOW, last)
	case last.Digest != m.digest:
		w.Cached = cached
		m.publish(w, v1.Cause_CAUSE_CHANGED, last)
	case last.Finding == wantindex.BodyLost, last.Finding == wantindex.Refused:
		m.publish(w, v1.Cause_CAUSE_AUDIT, last)
	case last.Finding != wantindex.NothingLost && last.Refreshes:
		w.Cached = cached
		m.publish(w, v1.Cause_CAUSE_AUDIT, last)
	case last.Drift != "" || !last.Resolved:
		m.plan.InSync = append(m.plan.InSync, w.GetKey())
	}
}

// drifted handles a key that was removed or changed after our write. asked means that the last want
// has no result yet.
func (m *planner) drifted(w *v1.Want, entry status.Entry, owner annotation.Ownership, last wantindex.Want, asked bool) {
	// The writer reads the live object, so one repair covers all changes until then.
	repairing := asked && last.Digest == m.digest && last.Drift != ""
	w.Drift = owner.Fingerprint
	if entry.Drift != owner.Unsettled() { // else the value was the right one, and is checked once more
		w.Drift = owner.Unsettled()
		m.reportDrift(w.GetKey(), entry.Fence, owner)
	}
	switch {
	case repairing && last.Now != w.GetNow():
		m.publish(w, v1.Cause_CAUSE_NOW, last)
	case repairing && last.Finding != wantindex.NothingLost:
		m.publish(w, v1.Cause_CAUSE_AUDIT, last)
	case repairing:
	default:
		m.publish(w, v1.Cause_CAUSE_DRIFT, last)
	}
}

// replaced handles a resolved key without any status: the object was replaced by one without our
// annotation.
func (m *planner) replaced(w *v1.Want, owner annotation.Ownership, last wantindex.Want) {
	w.Drift = owner.Fingerprint
	m.reportDrift(w.GetKey(), last.Fence, owner)
	m.publish(w, v1.Cause_CAUSE_DRIFT, last)
}

// reportDrift reports a changed key once per repair, however often it changes until then.
func (m *planner) reportDrift(key string, written status.Fence, owner annotation.Ownership) {
	var note string
	switch owner.State {
	case annotation.None:
		note = "key " + key + " was removed; it is fetched again"
	case annotation.Foreign:
		by := "somebody else"
		if manager := owner.Manager(); manager != "" {
			by = "field manager " + manager
		}
		note = "key " + key + " was changed by " + by + "; it is fetched again"
	case annotation.Ours, annotation.Unknown: // no known change
		return
	}
	m.plan.Notices = append(m.plan.Notices, Notice{
		Reason:     pipeline.ReasonDrifted,
		Key:        key,
		Note:       note,
		Occurrence: key + "\x00" + written.String(),
	})
}

func (m *planner) want(pair annotation.Pair) *v1.Want {
	o := m.object
	w := &v1.Want{
		Namespace:       o.Namespace,
		Name:            o.Name,
		Key:             pair.Key,
		Uid:             string(o.UID),
		ResourceVersion: o.ResourceVersion(),
		Url:             pair.URL,
		Now:             o.Request.Now,
		Sha256:          o.Request.SHA256[pair.Key],
		Epoch:           max(m.epoch, m.fence(pair.Key).Epoch),
		ReadFirst:       m.unproven(pair.Key),
		ObservedAt:      timestamppb.New(o.SeenAt),
	}
	if interval := o.Request.Interval(pair.Key); interval > 0 {
		w.Refresh = durationpb.New(interval)
	}
	if rules := o.Request.Rules[pair.Key]; !rules.Empty() {
		w.Expect, w.Select, w.HeldSize = rules.Expect, rules.Select, o.Status.Of(pair.Key).Size
	}
	return w
}

// unproven reports whether the metadata cannot prove the value of a key: others own it, or managedFields are
// missing or incomplete, as not even the annotation has an owner.
func (m *planner) unproven(key string) bool {
	switch m.object.Owner(key).State {
	case annotation.Ours:
		return false
	case annotation.None:
		return m.object.MainAnnotatedAt.IsZero()
	default:
		return true
	}
}

// carryStatus adds the key's status entry if it is the only one; otherwise the wants of a large
// object would all repeat the whole status.
func (m *planner) carryStatus(w *v1.Want) {
	own, readFirst := "", m.object.Others != nil
	for key := range m.object.Status.Keys() {
		readFirst = readFirst || key != w.GetKey()
	}
	if !readFirst {
		own = m.object.Status.Status().String()
	}
	if len(own) > maxStatusBytes {
		own, readFirst = "", true
	}
	w.Status, w.ReadFirst = own, w.GetReadFirst() || readFirst
}

func (m *planner) publish(w *v1.Want, cause v1.Cause, last wantindex.Want) {
	w.Cause = cause
	m.carryStatus(w)
	switch cause {
	case v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_CHANGED, v1.Cause_CAUSE_NOW:
		w.AskedAt = timestamppb.New(m.object.AskedAt())
	default: // no user requested it
	}
	m.plan.Publish = append(m.plan.Publish, Want{
		Want: w, Last: last.Fence.Seq, After: m.fence(w.GetKey()), Digest: m.digest,
	})
}

func (m *planner) fence(key string) status.Fence {
	entry := m.object.Status.Of(key)
	if entry.Copied(m.object.UID) {
		return status.Fence{}
	}
	return entry.Fence
}

// Reconcile returns the message that makes the writer reconcile an object with its annotations. With
// remove, the writer also removes keys that are no longer requested.
func Reconcile(o *annotated.Object, remove bool) *v1.Result {
	return &v1.Result{
		Want: &v1.Want{
			Namespace: o.Namespace, Name: o.Name, Key: status.ObjectKey, Uid: string(o.UID),
			ResourceVersion: o.ResourceVersion(),
		},
		ObservedAt: timestamppb.New(o.SeenAt),
		Outcome:    &v1.Result_Reconcile{Reconcile: &v1.Reconcile{Remove: remove, Bound: o.Bound}},
	}
}
