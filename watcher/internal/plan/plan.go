// Package plan compares a ConfigMap with its wants in the stream and decides what the watcher does.
// It has no side effects.
package plan

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Plan lists the actions for one object.
type Plan struct {
	Publish []Publication
	// Retract lists the keys whose want a tombstone replaces.
	Retract []string
	// Remove lists the keys with a status that are no longer requested.
	Remove []string
	// Answered lists the keys whose want has a result in the status.
	Answered []string
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

// Publication is a want to publish.
type Publication struct {
	*v1.Want
	// Last is the sequence of the replaced want (0: none).
	Last uint64
	// After is the fence of the key in the object. Results of the want must be newer.
	After status.Fence
	// RequestHash identifies the request, see wantindex.RequestHash.
	RequestHash [16]byte
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

// Make compares an object with the wants in the stream. A nil object is gone or was never
// annotated.
func Make(o *annotated.Object, wants map[string]wantindex.Want, epoch int64) Plan {
	p := &planner{object: o, wants: wants, epoch: epoch}
	switch {
	case o == nil || o.Request.Suspended:
		p.retractAllBut(nil)
	case o.Invalid != nil:
		// A mistake in the text is no reason to remove data.
		text := o.Invalid.Error()
		p.notice(failure.Reason(failure.InvalidAnnotation), "", text, text)
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
	p.plan.Problem = p.object.Request.ProblemText(p.object.Invalid)
	p.plan.AskWriter = p.plan.Problem != p.object.Status.Problem() && p.object.OtherAskers[status.ObjectKey] == ""
}

// reportProblems reports mistakes in single annotations and pairs.
func (p *planner) reportProblems(problems []annotation.Problem) {
	for _, problem := range problems {
		occurrence := problem.Text
		if problem.Key != "" { // the text has the number of the pair, which other pairs change
			occurrence = problem.Key + "\x00" + problem.Mistake
		}
		reason := failure.Reason(failure.InvalidAnnotation)
		if problem.Adjusted {
			reason = failure.ReasonAdjusted
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
		if !o.Request.Mentions(key) {
			orphans = append(orphans, key)
		}
	}
	return orphans
}

// keyPlanner plans one key.
type keyPlanner struct {
	*planner
	pair  annotation.Pair
	shown keystate.View
	// want is the want for the current request, with its hash, and last the want in the stream.
	want        *v1.Want
	requestHash [16]byte
	last        wantindex.Want
}

// key plans a requested key.
func (p *planner) key(pair annotation.Pair) {
	k := &keyPlanner{planner: p, pair: pair, shown: p.object.View(pair.Key), last: p.wants[pair.Key]}
	entry, value := k.shown.Entry, k.shown.Value(p.object.Spec(pair))
	switch {
	case k.shown.OtherAsker != "":
		k.reportForeign(sentence.KeyOfOther(pair.Key, k.shown.OtherAsker))
		return
	case value == keystate.Foreign:
		k.foreign()
		return
	}
	k.want = k.newWant()
	k.requestHash = wantindex.RequestHash(k.want)
	if value == keystate.Copied {
		k.copied()
		return
	}
	// A fence of another epoch proves nothing: the object was restored from a backup, or the stream was
	// recreated.
	resolved := k.published() && entry.Fence.Epoch == k.last.Fence.Epoch && entry.Fence.Seq >= k.last.Fence.Seq
	if resolved && !k.last.Answered {
		p.plan.Answered = append(p.plan.Answered, pair.Key)
	}
	switch {
	case value == keystate.Drifted:
		k.drifted(!resolved || entry.Failing())
	case value == keystate.Held && !entry.Failing():
		k.satisfied()
	case k.last.Answered && entry == status.Entry{} && k.last.RequestHash == k.requestHash:
		k.replaced()
	default:
		k.unsatisfied()
	}
}

// published reports whether the stream has a want. Without its sequence, that is unknown.
func (k *keyPlanner) published() bool { return k.last.Fence.Seq > 0 }

// unsatisfied handles a key without the requested body, or with failing later attempts.
func (k *keyPlanner) unsatisfied() {
	switch {
	case !k.published():
		k.publish(v1.Cause_CAUSE_NEW)
	case k.last.RequestHash != k.requestHash:
		k.publish(v1.Cause_CAUSE_CHANGED)
	case k.last.Now != k.want.GetNow():
		k.publish(v1.Cause_CAUSE_NOW)
	case k.last.Finding != wantindex.NothingLost:
		k.publish(v1.Cause_CAUSE_AUDIT)
	}
}

// copied handles a key whose status was written on another object, as after a restore. Only its
// digest can show that the value is ours, so the writer compares it.
func (k *keyPlanner) copied() {
	k.want.ReadFirst = true
	if k.last.Answered && k.last.RequestHash == k.requestHash { // the copy replaced our status
		k.publish(v1.Cause_CAUSE_DRIFT)
		return
	}
	k.want.Fingerprint = k.shown.Owner.Fingerprint
	k.unsatisfied()
}

// foreign handles a foreign key. The writer learns of it only if it is asked.
func (k *keyPlanner) foreign() {
	k.plan.Foreign = append(k.plan.Foreign, k.pair.Key, k.pair.URL)
	entry, reason := k.shown.Entry, failure.Reason(failure.KeyExists)
	if entry.Copied(k.object.UID) || entry.Error != reason || entry.FailingURL() != k.pair.URL {
		k.plan.AskWriter = true
	}
	k.reportForeign(sentence.KeyExists(k.pair.Key))
}

// reportForeign reports a key that another manager or installation owns. Nothing is fetched for it.
func (k *keyPlanner) reportForeign(text string) {
	const class = failure.KeyExists
	k.notice(failure.Reason(class), k.pair.Key, text+" ["+sentence.WhyEmpty(class)+"]", k.pair.Key)
	if _, wanted := k.wants[k.pair.Key]; wanted {
		k.plan.Retract = append(k.plan.Retract, k.pair.Key)
	}
}

// satisfied handles a key that holds the requested body. A missing want is published with the
// cached body, which only starts the refresh timer.
func (k *keyPlanner) satisfied() {
	cached := &v1.Cached{Sha256: k.shown.Entry.SHA256}
	switch {
	case !k.published():
		k.want.Cached = cached
		k.publish(v1.Cause_CAUSE_NEW)
	case k.last.Now != k.want.GetNow():
		k.publish(v1.Cause_CAUSE_NOW)
	case k.last.RequestHash != k.requestHash:
		k.want.Cached = cached
		k.publish(v1.Cause_CAUSE_CHANGED)
	case k.last.Finding == wantindex.BodyLost, k.last.Finding == wantindex.BodyLostAgain:
		k.publish(v1.Cause_CAUSE_AUDIT)
	case k.last.Finding != wantindex.NothingLost && k.last.Refreshes:
		k.want.Cached = cached
		k.publish(v1.Cause_CAUSE_AUDIT)
	case k.last.Fingerprint != "" || !k.last.Answered:
		k.plan.InSync = append(k.plan.InSync, k.pair.Key)
	}
}

// drifted handles a key that was removed or changed after our write. asked means that the last want
// has no result yet.
func (k *keyPlanner) drifted(asked bool) {
	entry, owner := k.shown.Entry, k.shown.Owner
	// The writer reads the live object, so one repair covers all changes until then.
	repairing := asked && k.last.RequestHash == k.requestHash && k.last.Fingerprint != ""
	k.want.Fingerprint = owner.Fingerprint
	// If they are equal, the writer found the right value within the second of the change, and now looks once more.
	if entry.CheckedFingerprint != owner.Unsettled() {
		k.want.Fingerprint = owner.Unsettled()
		k.reportDrift(entry.Fence)
	}
	switch {
	case !repairing:
		k.publish(v1.Cause_CAUSE_DRIFT)
	case k.last.Now != k.want.GetNow():
		k.publish(v1.Cause_CAUSE_NOW)
	case k.last.Finding != wantindex.NothingLost:
		k.publish(v1.Cause_CAUSE_AUDIT)
	}
}

// replaced handles a resolved key without any status: the object was replaced by one without our
// annotation.
func (k *keyPlanner) replaced() {
	k.want.Fingerprint = k.shown.Owner.Fingerprint
	k.reportDrift(k.last.Fence)
	k.publish(v1.Cause_CAUSE_DRIFT)
}

// reportDrift reports a changed key once per repair, however often it changes until then.
func (k *keyPlanner) reportDrift(written status.Fence) {
	key, note := k.pair.Key, "key "+k.pair.Key+" was removed"
	switch owner := k.shown.Owner; owner.State {
	case annotation.None:
	case annotation.Foreign:
		note = sentence.ChangedBy(key, owner.Manager())
	case annotation.Ours, annotation.Unknown: // no known change
		return
	}
	k.notice(failure.ReasonDrifted, key, note+"; it is fetched again", key+"\x00"+written.String())
}

// newWant returns the want for the current request.
func (k *keyPlanner) newWant() *v1.Want {
	o, key := k.object, k.pair.Key
	w := &v1.Want{
		Namespace: o.Namespace, Name: o.Name, Key: key, Uid: string(o.UID), ResourceVersion: o.ResourceVersion(),
		Url: k.pair.URL, Now: o.Request.Now, Sha256: o.Request.SHA256[key], ReadFirst: k.unproven(),
		Epoch: max(k.epoch, k.fence().Epoch), ObservedAt: timestamppb.New(o.SeenAt),
	}
	if interval := o.Request.Interval(key); interval > 0 {
		w.Refresh = durationpb.New(interval)
	}
	if rules := o.Request.Rules[key]; !rules.Empty() {
		w.Expect, w.Select, w.HeldSize = rules.Expect, rules.Select, k.shown.Entry.Size
	}
	return w
}

// unproven reports whether the metadata cannot prove the value of the key: others own it, or managedFields are
// missing or incomplete, as not even the annotation has an owner.
func (k *keyPlanner) unproven() bool {
	switch k.shown.Owner.State {
	case annotation.Ours:
		return false
	case annotation.None:
		return k.object.MainAnnotatedAt.IsZero()
	default:
		return true
	}
}

// carryStatus adds the key's status entry to the want if it is the only one; otherwise the wants of a large
// object would all repeat the whole status.
func (k *keyPlanner) carryStatus() {
	own, readFirst := "", k.object.OtherAskers != nil
	for key := range k.object.Status.Keys() {
		readFirst = readFirst || key != k.pair.Key
	}
	if !readFirst {
		own = k.object.Status.Status().String()
	}
	if len(own) > maxStatusBytes {
		own, readFirst = "", true
	}
	k.want.Status, k.want.ReadFirst = own, k.want.GetReadFirst() || readFirst
}

func (k *keyPlanner) publish(cause v1.Cause) {
	k.want.Cause = cause
	k.carryStatus()
	switch cause {
	case v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_CHANGED, v1.Cause_CAUSE_NOW:
		k.want.AskedAt = timestamppb.New(k.object.AskedAt())
	default: // no user requested it
	}
	k.plan.Publish = append(k.plan.Publish, Publication{
		Want: k.want, Last: k.last.Fence.Seq, After: k.fence(), RequestHash: k.requestHash,
	})
}

// fence returns the fence of the key in the object.
func (k *keyPlanner) fence() status.Fence {
	if k.shown.Entry.Copied(k.object.UID) {
		return status.Fence{}
	}
	return k.shown.Entry.Fence
}

// Sync returns the message that makes the writer bring an object in line with its annotations. With
// remove, the writer also removes keys that are no longer requested.
func Sync(o *annotated.Object, remove bool) *v1.Result {
	return &v1.Result{
		Want: &v1.Want{
			Namespace: o.Namespace, Name: o.Name, Key: status.ObjectKey, Uid: string(o.UID),
			ResourceVersion: o.ResourceVersion(),
		},
		ObservedAt: timestamppb.New(o.SeenAt),
		Outcome:    &v1.Result_Sync{Sync: &v1.Sync{Remove: remove, Bound: o.Bound}},
	}
}
