// Package plan compares a ConfigMap with its wants in the stream and decides what the watcher does.
// It has no side effects.
package plan

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
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
	// Problem and Foreign belong in the status: the mistakes in the annotations, and each foreign
	// key followed by its URL.
	Problem string
	Foreign []string
	// AskWriter means that the writer must correct the status, or fill a pinned key from the history.
	AskWriter bool
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
	p := &planner{object: o, wants: wants, epoch: epoch}
	switch {
	case o == nil || o.Request.Suspended:
		p.retractAllBut(nil)
	case o.Invalid != nil:
		// A mistake in the text is no reason to remove data.
		text := o.Invalid.Error()
		p.notice(pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION), "", text, text)
		p.retractAllBut(nil)
		p.compareProblem()
	default:
		p.compareProblem()
		p.reportProblems(o.Request.Problems)
		for _, pair := range o.Request.Pairs {
			p.key(pair)
		}
		p.retractAllBut(func(key string) bool { _, requested := o.Request.URL(key); return requested })
		p.plan.Remove = Orphans(o)
	}
	return p.plan
}

// NeedsWant reports whether an object needs a new want for a pair, apart from findings of the audit.
func NeedsWant(o *annotated.Object, pair annotation.Pair, last wantindex.Want, epoch int64) bool {
	last.Finding = wantindex.NothingLost
	p := &planner{object: o, wants: map[string]wantindex.Want{pair.Key: last}, epoch: epoch}
	p.key(pair)
	return len(p.plan.Publish) > 0
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
func (p *planner) retractAllBut(requested func(key string) bool) {
	for key := range p.wants {
		if requested == nil || !requested(key) {
			p.plan.Retract = append(p.plan.Retract, key)
		}
	}
	slices.Sort(p.plan.Retract)
}

func (p *planner) compareProblem() {
	p.plan.Problem = p.object.Request.Problem(p.object.Invalid)
	p.plan.AskWriter = p.plan.Problem != p.object.Status.Problem() && p.object.Others[status.ObjectKey] == ""
}

// reportProblems reports mistakes in single annotations and pairs.
func (p *planner) reportProblems(problems []annotation.Problem) {
	for _, problem := range problems {
		occurrence := problem.Text
		if problem.Key != "" { // the text has the number of the pair, which other pairs change
			occurrence = problem.Key + "\x00" + problem.Rule
		}
		reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
		if problem.Adjusted {
			reason = pipeline.ReasonAdjusted
		}
		p.notice(reason, problem.Key, problem.Text, occurrence)
	}
}

func (p *planner) notice(reason, key, note, occurrence string) {
	p.plan.Notices = append(p.plan.Notices, Notice{Reason: reason, Key: key, Note: note, Occurrence: occurrence})
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

func (p *planner) key(pair annotation.Pair) {
	shown, last := p.object.Shown(pair.Key), p.wants[pair.Key]
	entry, owner, value := shown.Entry, shown.Owner, shown.Value(p.object.Spec(pair))
	have := last.Fence.Seq > 0 // without a sequence, it is unknown whether the stream has the want
	switch {
	case shown.Other != "":
		p.reportForeign(pair.Key, sentence.KeyOfOther(pair.Key, shown.Other))
		return
	case value == keystate.Foreign:
		p.foreign(pair, entry)
		return
	}
	w := p.want(pair)
	p.digest = wantindex.Digest(w)
	if value == keystate.Copied {
		p.copied(w, owner, last, have)
		return
	}
	// A fence of another epoch proves nothing: the object was restored from a backup, or the stream was
	// recreated.
	resolved := have && entry.Fence.Epoch == last.Fence.Epoch && entry.Fence.Seq >= last.Fence.Seq
	if resolved && !last.Resolved {
		p.plan.Resolved = append(p.plan.Resolved, pair.Key)
	}
	switch {
	case value == keystate.Drifted:
		p.drifted(w, entry, owner, last, !resolved || entry.Failing())
	case value == keystate.Held && !entry.Failing():
		p.satisfied(w, entry, last, have)
	case last.Resolved && entry == status.Entry{} && last.Digest == p.digest:
		p.replaced(w, owner, last)
	default:
		p.unsatisfied(w, last, have)
	}
}

// unsatisfied handles a key without the requested body, or with failing later attempts.
func (p *planner) unsatisfied(w *v1.Want, last wantindex.Want, have bool) {
	switch {
	case !have:
		p.publish(w, v1.Cause_CAUSE_NEW, last)
	case last.Digest != p.digest:
		p.publish(w, v1.Cause_CAUSE_CHANGED, last)
	case last.Now != w.GetNow():
		p.publish(w, v1.Cause_CAUSE_NOW, last)
	case last.Finding != wantindex.NothingLost:
		p.publish(w, v1.Cause_CAUSE_AUDIT, last)
	}
}

// copied handles a key whose status was written on another object, as after a restore. Only its
// digest can show that the value is ours, so the writer compares it.
func (p *planner) copied(w *v1.Want, owner annotation.Ownership, last wantindex.Want, have bool) {
	w.ReadFirst = true
	if last.Resolved && last.Digest == p.digest { // the copy replaced our status
		p.publish(w, v1.Cause_CAUSE_DRIFT, last)
		return
	}
	w.Drift = owner.Fingerprint
	p.unsatisfied(w, last, have)
}

// foreign handles a foreign key. The writer learns of it only if it is asked.
func (p *planner) foreign(pair annotation.Pair, entry status.Entry) {
	p.plan.Foreign = append(p.plan.Foreign, pair.Key, pair.URL)
	reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS)
	if entry.Copied(p.object.UID) || entry.Error != reason || entry.FailingURL() != pair.URL {
		p.plan.AskWriter = true
	}
	p.reportForeign(pair.Key, sentence.KeyExists(pair.Key))
}

// reportForeign reports a key that another manager or installation owns. Nothing is fetched for it.
func (p *planner) reportForeign(key, text string) {
	const class = v1.FailureClass_FAILURE_CLASS_KEY_EXISTS
	p.notice(pipeline.Reason(class), key, text+" ["+sentence.WhyEmpty(class)+"]", key)
	if _, wanted := p.wants[key]; wanted {
		p.plan.Retract = append(p.plan.Retract, key)
	}
}

// satisfied handles a key that holds the requested body. A missing want is published with the
// cached body, which only starts the refresh timer.
func (p *planner) satisfied(w *v1.Want, entry status.Entry, last wantindex.Want, have bool) {
	cached := &v1.Cached{Sha256: entry.SHA256}
	switch {
	case !have:
		w.Cached = cached
		p.publish(w, v1.Cause_CAUSE_NEW, last)
	case last.Now != w.GetNow():
		p.publish(w, v1.Cause_CAUSE_NOW, last)
	case last.Digest != p.digest:
		w.Cached = cached
		p.publish(w, v1.Cause_CAUSE_CHANGED, last)
	case last.Finding == wantindex.BodyLost, last.Finding == wantindex.BodyLostAgain:
		p.publish(w, v1.Cause_CAUSE_AUDIT, last)
	case last.Finding != wantindex.NothingLost && last.Refreshes:
		w.Cached = cached
		p.publish(w, v1.Cause_CAUSE_AUDIT, last)
	case last.Drift != "" || !last.Resolved:
		p.plan.InSync = append(p.plan.InSync, w.GetKey())
	}
}

// drifted handles a key that was removed or changed after our write. asked means that the last want
// has no result yet.
func (p *planner) drifted(w *v1.Want, entry status.Entry, owner annotation.Ownership, last wantindex.Want, asked bool) {
	// The writer reads the live object, so one repair covers all changes until then.
	repairing := asked && last.Digest == p.digest && last.Drift != ""
	w.Drift = owner.Fingerprint
	if entry.Drift != owner.Unsettled() { // else the value was the right one, and is checked once more
		w.Drift = owner.Unsettled()
		p.reportDrift(w.GetKey(), entry.Fence, owner)
	}
	switch {
	case repairing && last.Now != w.GetNow():
		p.publish(w, v1.Cause_CAUSE_NOW, last)
	case repairing && last.Finding != wantindex.NothingLost:
		p.publish(w, v1.Cause_CAUSE_AUDIT, last)
	case repairing:
	default:
		p.publish(w, v1.Cause_CAUSE_DRIFT, last)
	}
}

// replaced handles a resolved key without any status: the object was replaced by one without our
// annotation.
func (p *planner) replaced(w *v1.Want, owner annotation.Ownership, last wantindex.Want) {
	w.Drift = owner.Fingerprint
	p.reportDrift(w.GetKey(), last.Fence, owner)
	p.publish(w, v1.Cause_CAUSE_DRIFT, last)
}

// reportDrift reports a changed key once per repair, however often it changes until then.
func (p *planner) reportDrift(key string, written status.Fence, owner annotation.Ownership) {
	note := "key " + key + " was removed"
	switch owner.State {
	case annotation.None:
	case annotation.Foreign:
		note = sentence.ChangedBy(key, owner.Manager())
	case annotation.Ours, annotation.Unknown: // no known change
		return
	}
	p.notice(pipeline.ReasonDrifted, key, note+"; it is fetched again", key+"\x00"+written.String())
}

func (p *planner) want(pair annotation.Pair) *v1.Want {
	o := p.object
	w := &v1.Want{
		Namespace: o.Namespace, Name: o.Name, Key: pair.Key, Uid: string(o.UID), ResourceVersion: o.ResourceVersion(),
		Url: pair.URL, Now: o.Request.Now, Sha256: o.Request.SHA256[pair.Key], ReadFirst: p.unproven(pair.Key),
		Epoch: max(p.epoch, p.fence(pair.Key).Epoch), ObservedAt: timestamppb.New(o.SeenAt),
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
func (p *planner) unproven(key string) bool {
	switch p.object.Owner(key).State {
	case annotation.Ours:
		return false
	case annotation.None:
		return p.object.MainAnnotatedAt.IsZero()
	default:
		return true
	}
}

// carryStatus adds the key's status entry if it is the only one; otherwise the wants of a large
// object would all repeat the whole status.
func (p *planner) carryStatus(w *v1.Want) {
	own, readFirst := "", p.object.Others != nil
	for key := range p.object.Status.Keys() {
		readFirst = readFirst || key != w.GetKey()
	}
	if !readFirst {
		own = p.object.Status.Status().String()
	}
	if len(own) > maxStatusBytes {
		own, readFirst = "", true
	}
	w.Status, w.ReadFirst = own, w.GetReadFirst() || readFirst
}

func (p *planner) publish(w *v1.Want, cause v1.Cause, last wantindex.Want) {
	w.Cause = cause
	p.carryStatus(w)
	switch cause {
	case v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_CHANGED, v1.Cause_CAUSE_NOW:
		w.AskedAt = timestamppb.New(p.object.AskedAt())
	default: // no user requested it
	}
	p.plan.Publish = append(p.plan.Publish, Want{
		Want: w, Last: last.Fence.Seq, After: p.fence(w.GetKey()), Digest: p.digest,
	})
}

func (p *planner) fence(key string) status.Fence {
	entry := p.object.Status.Of(key)
	if entry.Copied(p.object.UID) {
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
