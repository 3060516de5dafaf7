package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/sentence"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// maxMessage is the maximum length of a condition's message, in bytes. The API allows more.
const maxMessage = 1024

// Input is the state that a status is computed from.
type Input struct {
	Plan *Plan
	// Target is the ConfigMap of the Watcher (nil if there is none).
	Target *Target
	// UpToDate means that the ConfigMap has everything that the plan applies.
	UpToDate bool
	// Problem is the problem of the ConfigMap or its name (nil if there is none). That of the Watcher itself is in Plan.
	Problem *Problem
	// NotInjected is the reason why pods do not get the sidecar (nil if they do). It is valid only if
	// InjectionKnown.
	NotInjected    *Problem
	InjectionKnown bool
	// Pods counts the pods with the sidecar (nil if they are not watched).
	Pods *Count
	// Previous is the previous status, reduced by Kept, and Version the version of its Watcher.
	Previous watchv1.WatcherStatus
	Version  uint64
	Now      time.Time
}

// answer is what a condition says.
type answer struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// StatusOf returns the status.
func StatusOf(in Input) watchv1.WatcherStatus {
	s := watchv1.WatcherStatus{
		ObservedGeneration: in.Plan.Generation, ConfigMapName: in.Plan.Target.Name,
		LastHandledReconcileAt: in.Previous.LastHandledReconcileAt,
	}
	if in.UpToDate {
		s.LastHandledReconcileAt = in.Plan.CurlNow
	}
	fetched := 0
	for _, spec := range in.Plan.Sources {
		state := in.source(spec)
		if state.SHA256 != "" {
			fetched++
		}
		s.Sources = append(s.Sources, state)
	}
	s.Fetched = "-"
	if len(in.Plan.Sources) > 0 {
		s.Fetched = fmt.Sprintf("%d/%d", fetched, len(in.Plan.Sources))
	}
	if in.Pods != nil && (in.Pods.Injected > 0 || in.Plan.Sidecar != nil) {
		counts := in.Pods.PodsStatus
		s.Pods = &counts
	}
	in.content(&s)
	s.Conditions = in.conditions(s.Sources)
	return s
}

// source returns the state of one source.
func (in Input) source(spec keystate.Spec) watchv1.SourceStatus {
	state := watchv1.SourceStatus{Key: spec.Key, State: watchv1.Pending}
	if in.Target == nil {
		return state
	}
	entry := in.Target.Entries.Of(spec.Key)
	shown := keystate.View{
		UID: in.Target.UID, Entry: entry, Owner: in.Target.Owners.Of(spec.Key), OtherAsker: in.Target.Others[spec.Key],
	}
	now := keystate.Of(spec, &shown, nil, in.Now)
	switch value := shown.Value(spec); {
	case now.State == keystate.Contested:
	case value == keystate.Held, value == keystate.Drifted:
		state.State = watchv1.Good
		state.SHA256, state.Size, state.FetchedAt = entry.SHA256, entry.Size, seconds(entry.ChangedAt)
	}
	if now.State.Bad() {
		state.State = watchv1.Failing
		state.Reason, state.Since, state.Attempts = now.Reason, seconds(now.Since), int64(now.Attempts)
		state.HTTPStatus, state.Message, state.NextTry = now.Status, now.Message, seconds(now.Next)
		state.GaveUp = entry.GaveUp
	}
	return state
}

// content sets the digest of all content, and the time of its last change.
func (in Input) content(s *watchv1.WatcherStatus) {
	s.ContentSHA256, s.ChangedAt = in.Previous.ContentSHA256, in.Previous.ChangedAt
	if !in.UpToDate {
		return
	}
	sum := sha256.New()
	sum.Write([]byte(in.Plan.StaticSHA256.String()))
	for _, source := range s.Sources {
		sum.Write([]byte(source.Key + "\x00" + source.SHA256 + "\x00"))
	}
	if digest := hex.EncodeToString(sum.Sum(nil)); digest != s.ContentSHA256 || s.ChangedAt == nil {
		s.ContentSHA256, s.ChangedAt = digest, seconds(in.Now)
	}
}

// conditions returns the conditions that follow from the sources and the ConfigMap.
func (in Input) conditions(sources []watchv1.SourceStatus) []metav1.Condition {
	ready, stalled := in.ready(sources)
	conditions := []metav1.Condition{
		in.condition(watchv1.ConditionReady, ready), in.condition(watchv1.ConditionFresh, in.fresh(sources)),
	}
	if in.Plan.Sidecar != nil {
		conditions = append(conditions, in.condition(watchv1.ConditionInjectable, in.injectable()))
	}
	switch {
	case stalled:
		reason := ready.reason
		if failing := first(sources, in.isTerminal); reason == watchv1.ReasonFetchFailed && failing != nil {
			reason = failing.Reason
		}
		conditions = append(conditions,
			in.condition(watchv1.ConditionStalled, answer{metav1.ConditionTrue, reason, ready.message}))
	case ready.status != metav1.ConditionTrue && !in.Plan.Suspended:
		conditions = append(conditions,
			in.condition(watchv1.ConditionReconciling, answer{metav1.ConditionTrue, ready.reason, ready.message}))
	}
	return conditions
}

// condition keeps the transition time while the value stays the same.
func (in Input) condition(kind string, v answer) metav1.Condition {
	c := metav1.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: cut(v.message),
		ObservedGeneration: in.Plan.Generation, LastTransitionTime: *seconds(in.Now),
	}
	if before := meta.FindStatusCondition(in.Previous.Conditions, kind); before != nil && before.Status == v.status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return c
}

// ready returns the value of Ready, and whether the Watcher is stalled: only an edit helps.
func (in Input) ready(sources []watchv1.SourceStatus) (v answer, stalled bool) {
	if problem := cmp.Or(in.Problem, in.Plan.Problem); problem != nil {
		return answer{metav1.ConditionFalse, problem.Reason, problem.Message}, true
	}
	if first(sources, isImmutable) != nil {
		return answer{metav1.ConditionFalse, watchv1.ReasonTargetImmutable, Immutable(in.Plan)}, true
	}
	if !in.UpToDate {
		return in.progressing("ConfigMap " + in.Plan.Target.Name + " is not applied yet"), false
	}
	if first(sources, isMissing) != nil {
		return answer{metav1.ConditionFalse, watchv1.ReasonFetchFailed, in.failures(sources, isMissing)},
			first(sources, in.isTerminal) != nil
	}
	if pending := first(sources, isUnfetched); pending != nil {
		return in.progressing("key " + pending.Key + " has not been fetched yet"), false
	}
	return answer{
		metav1.ConditionTrue, watchv1.ReasonReady,
		fmt.Sprintf("ConfigMap %s holds %d fetched and %d static keys",
			in.Plan.Target.Name, len(sources), in.Plan.Static),
	}, false
}

// progressing returns the value of Ready while work is in flight.
func (in Input) progressing(message string) answer {
	if in.Plan.Suspended {
		return answer{
			metav1.ConditionUnknown, watchv1.ReasonSuspended,
			message + ", and will not be while spec.suspend is true",
		}
	}
	return answer{metav1.ConditionUnknown, watchv1.ReasonProgressing, message}
}

// fresh returns the value of Fresh.
func (in Input) fresh(sources []watchv1.SourceStatus) answer {
	failing := func(s watchv1.SourceStatus) bool { return s.State == watchv1.Failing }
	if in.Plan.Suspended && len(sources) > 0 {
		return answer{metav1.ConditionUnknown, watchv1.ReasonSuspended, "nothing is fetched while spec.suspend is true"}
	}
	if found := first(sources, failing); found != nil {
		return answer{metav1.ConditionFalse, found.Reason, in.failures(sources, failing)}
	}
	if pending := first(sources, isUnfetched); pending != nil {
		return answer{metav1.ConditionUnknown, watchv1.ReasonFetching, "key " + pending.Key + " has not been fetched yet"}
	}
	if len(sources) == 0 {
		return answer{metav1.ConditionTrue, watchv1.ReasonFresh, "there is nothing to fetch"}
	}
	return answer{metav1.ConditionTrue, watchv1.ReasonFresh, "the last fetch of every source succeeded"}
}

// injectable returns the value of Injectable.
func (in Input) injectable() answer {
	if !in.InjectionKnown {
		if before := meta.FindStatusCondition(in.Previous.Conditions, watchv1.ConditionInjectable); before != nil {
			return answer{before.Status, before.Reason, before.Message}
		}
		return answer{metav1.ConditionUnknown, watchv1.ReasonProgressing, "the labels of the namespace are not known yet"}
	}
	if in.NotInjected != nil {
		return answer{metav1.ConditionFalse, in.NotInjected.Reason, in.NotInjected.Message}
	}
	return answer{metav1.ConditionTrue, watchv1.ReasonInjectable, "pods with the annotation " + watchv1.InjectAnnotation +
		": " + in.Plan.Watcher.Name + " get container " + in.Plan.Sidecar.Container.Name + " when they are created"}
}

// Immutable returns the message about an immutable ConfigMap.
func Immutable(p *Plan) string {
	return "ConfigMap " + p.Target.Name + " is immutable; delete it, or name another one"
}

// isUnfetched reports whether there is no body for the current request.
func isUnfetched(s watchv1.SourceStatus) bool { return s.SHA256 == "" }

// isMissing reports whether the body is missing because the fetch fails.
func isMissing(s watchv1.SourceStatus) bool {
	return isUnfetched(s) && s.State == watchv1.Failing
}

// isTerminal reports whether only an edit helps: policy denies the URL, whatever DNS and servers respond.
func (in Input) isTerminal(s watchv1.SourceStatus) bool {
	return isMissing(s) && in.Target.Entries.Of(s.Key).Why().Terminal
}

func isImmutable(s watchv1.SourceStatus) bool {
	return s.Reason == failure.Reason(failure.Immutable)
}

// first returns the first source that matches, or nil.
func first(sources []watchv1.SourceStatus, passes func(watchv1.SourceStatus) bool) *watchv1.SourceStatus {
	if i := slices.IndexFunc(sources, passes); i >= 0 {
		return &sources[i]
	}
	return nil
}

// failures lists the failing sources that match, with message, start and next try.
func (in Input) failures(sources []watchv1.SourceStatus, passes func(watchv1.SourceStatus) bool) string {
	var parts []string
	for _, s := range sources {
		if !passes(s) {
			continue
		}
		part := "key " + s.Key + ": " + cmp.Or(s.Message, s.Reason)
		if message := in.unmet(s.Key); message != "" {
			part += " (" + message + ")"
		}
		if s.Since != nil {
			part += ", since " + s.Since.UTC().Format(time.RFC3339)
		}
		if s.GaveUp && s.Attempts > 0 {
			part += ", gave up after " + sentence.Attempts(s.Attempts)
		}
		if s.GaveUp && s.NextTry != nil {
			part += ", next try at " + s.NextTry.UTC().Format("15:04") + " UTC"
		}
		if cause := sentence.WhyEmpty(failure.ClassOf(s.Reason)); cause != "" {
			part += " [" + cause + "]"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// unmet returns the message of the rule that the last body of a key did not meet, if any.
func (in Input) unmet(key string) string {
	rules, number := in.Plan.Expect[key], int(in.Target.Entries.Of(key).Why().Rule)
	if number == 0 || number > len(rules) {
		return ""
	}
	return rules[number-1].Message
}

// cut truncates a long message, if possible between two parts.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	kept := strings.ToValidUTF8(message[:maxMessage-len(" …")], "")
	return kept[:cmp.Or(max(strings.LastIndex(kept, ";"), 0), len(kept))] + " …"
}

// seconds returns a time as it is stored (nil for zero).
func seconds(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// Kept reduces a status to the fields that StatusOf and its Events need. Keeper caches it for each
// Watcher.
func Kept(s watchv1.WatcherStatus) watchv1.WatcherStatus {
	kept := watchv1.WatcherStatus{
		ContentSHA256: s.ContentSHA256, ChangedAt: s.ChangedAt, LastHandledReconcileAt: s.LastHandledReconcileAt,
		Pods:       s.Pods,
		Conditions: make([]metav1.Condition, len(s.Conditions)),
	}
	for i, c := range s.Conditions {
		kept.Conditions[i] = metav1.Condition{
			Type: unique.Make(c.Type).Value(), Status: unique.Make(c.Status).Value(), Reason: unique.Make(c.Reason).Value(),
			ObservedGeneration: c.ObservedGeneration, LastTransitionTime: c.LastTransitionTime,
		}
		if c.Type == watchv1.ConditionInjectable || c.Type == watchv1.ConditionFresh && c.Status == metav1.ConditionFalse {
			kept.Conditions[i].Message = c.Message
		}
	}
	return kept
}
