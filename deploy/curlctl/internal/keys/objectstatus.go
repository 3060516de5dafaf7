package keys

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// TimelineEntry is one event of the timeline.
type TimelineEntry struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Key    string    `json:"key,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// Pair is one pair of the annotation in JSON output.
type Pair struct {
	Key     string `json:"key"`
	URL     URL    `json:"url"`
	Refresh string `json:"refresh,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// String formats a pair for people.
func (p Pair) String() string {
	text := p.Key + " = " + p.URL.String()
	if p.Refresh != "" {
		text += ", every " + p.Refresh
	}
	return text
}

// ObjectStatus is everything known about a ConfigMap.
type ObjectStatus struct {
	Namespace  string `json:"namespace"`
	ConfigMap  string `json:"configMap"`
	Exists     bool   `json:"exists"`
	UID        string `json:"uid,omitempty"`
	Annotation string `json:"annotation,omitempty"`
	Asks       []Pair `json:"asks,omitempty"`
	Problem    string `json:"problem,omitempty"`
	// Notes are about annotations that were adjusted to the limits of the operator.
	Notes []string `json:"notes,omitempty"`
	// Ignored says why the watcher ignores the object.
	Ignored string `json:"ignored,omitempty"`
	// Keys are the wanted and the annotated keys.
	Keys     []Key           `json:"keys,omitempty"`
	Watcher  *Watcher        `json:"watcher,omitempty"`
	Timeline []TimelineEntry `json:"timeline"`

	// read has the object, if it exists.
	read Objects
}

// Known reports whether anything is known about the object.
func (v *ObjectStatus) Known() bool {
	return v.Exists || v.Watcher != nil || len(v.Timeline) > 0 || len(v.Keys) > 0
}

// Fields returns everything but the timeline for people.
func (v *ObjectStatus) Fields(now time.Time) (fields []printer.Field) {
	add := func(name string, value any) { fields = append(fields, printer.Field{Name: name, Value: value}) }
	name := v.Namespace + "/" + v.ConfigMap
	if v.Watcher != nil {
		add("Watcher", v.Namespace+"/"+v.Watcher.Name)
		for _, c := range v.Watcher.Conditions {
			add(c.Type, string(c.Status)+", "+c.Reason+": "+c.Message)
		}
		add("Fetched", v.Watcher.Fetched)
	}
	switch {
	case v.Exists:
	case v.Watcher != nil:
		name += " (does not exist)"
	default:
		name += " (does not exist any more)"
	}
	add("ConfigMap", name)
	add("UID", v.UID)
	add("Annotation", v.Annotation)
	for _, pair := range v.Asks {
		add("Fetches", pair)
	}
	add("Ignored", v.Ignored)
	add("Problem", v.Problem)
	for _, note := range v.Notes {
		add("Note", note)
	}
	for _, k := range v.Keys {
		if k.State != keystate.Ignored {
			add("Key "+k.Key, describe(now, k.Condition))
		}
	}
	return fields
}

// describe formats a condition as one sentence.
func describe(now time.Time, c keystate.Condition) string {
	text := strings.TrimSpace(string(c.State) + " " + Reason(c.Reason, c.Status))
	if !c.Since.IsZero() && !c.Good() {
		text += " for " + printer.Age(now, c.Since)
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	if c.Next.After(now) && !c.Good() {
		text += ", next try in " + printer.Until(now, c.Next)
	}
	return text
}

// Row returns the row of the entry in lists.
func (t TimelineEntry) Row(now time.Time) printer.Row {
	age := printer.Age(now, t.At)
	if t.At.After(now) {
		age = "in " + printer.Until(now, t.At)
	}
	return printer.Row{Cells: printer.Cells(
		"TIME", printer.Clock(t.At), "AGE", age, "WHAT", t.What, "KEY", t.Key, "DETAIL", t.Detail,
	)}
}

// ReadCluster adds the ConfigMap, or the one of the Watcher with that name, and the Watcher that owns it.
func (v *ObjectStatus) ReadCluster(ctx context.Context, from *cluster.Client) error {
	found, owner, err := from.Object(ctx, v.Namespace, v.ConfigMap)
	if err != nil {
		return err
	}
	if owner != nil {
		v.ConfigMap = owner.ConfigMapName()
		v.Watcher = &Watcher{Name: owner.Name, Fetched: owner.Status.Fetched, Conditions: owner.Status.Conditions}
	}
	if found != nil {
		v.readMetadata(found)
	}
	return nil
}

func (v *ObjectStatus) readMetadata(object *metav1.PartialObjectMetadata) {
	v.Exists, v.UID = true, string(object.UID)
	v.add(object.CreationTimestamp.Time, "created", "", "")
	read := ReadObject(&object.ObjectMeta, annotation.DefaultProtected())
	request := read.Request
	v.Annotation, v.Ignored, v.Problem = request.Annotation, read.Ignored, read.Problem
	v.read = Objects{{Namespace: v.Namespace, Name: v.ConfigMap}: read}
	for _, problem := range request.Problems {
		if problem.WatcherOnly {
			v.Notes = append(v.Notes, problem.Text)
		}
	}
	for _, pair := range request.Pairs {
		v.Asks = append(v.Asks, Pair{
			Key: pair.Key, URL: URL(pair.URL), Refresh: formatInterval(request.Interval(pair.Key)),
			SHA256: request.SHA256[pair.Key],
		})
	}
	if read.Unreadable {
		v.Problem = strings.TrimPrefix(v.Problem+", and ", ", and ") + "the status annotation is unreadable"
	}
	v.readStatus(read.Status)
}

// readStatus adds the entries of the status annotation.
func (v *ObjectStatus) readStatus(state status.Status) {
	for _, key := range slices.Sorted(maps.Keys(state.Keys)) {
		e := state.Keys[key]
		if e.HasBody() {
			from := cmp.Or(URL(e.URL).String(), "the history")
			detail := fmt.Sprintf("%d bytes, sha256 %s…, from %s", e.Size, e.SHA256[:12], from)
			if e.Binary {
				detail += ", in binaryData because it is not text"
			}
			v.add(e.ChangedAt, "written", key, detail)
		}
		if e.Failing() {
			detail := e.Error
			if message := e.Why().Message; message != "" {
				detail += ": " + message
			}
			if e.Attempts > 0 { // KeyExists has no attempts
				detail += ", " + printer.Plural(e.Attempts, "attempt") + " when it was reported"
			}
			v.add(e.Since, "failing since", key, detail)
		}
	}
	if wrong := state.Problem; wrong != nil {
		v.add(wrong.Since, "not followed since", "", wrong.Error)
	}
}

// addTimer adds a timer, and the last attempt that set it.
func (v *ObjectStatus) addTimer(t broker.NextFetch) {
	detail := pipeline.CauseName(t.Due.GetCause())
	if waits := sentence.WaitsFor(t.Due.GetWaitsFor(), t.URL); waits != "" {
		detail += ", waits for the " + waits
	}
	v.add(t.At, "scheduled", t.Key.Key, detail)
	switch at := keystate.LastAttempt(t.Due, t.SetAt); {
	case at.IsZero():
	case t.Reason() != "":
		v.add(at, "last checked", t.Key.Key, t.Reason())
	default:
		v.add(at, "last checked", t.Key.Key, "ok")
	}
}

func (v *ObjectStatus) add(at time.Time, what, key, detail string) {
	entry := TimelineEntry{At: at.UTC(), What: what, Key: key, Detail: detail}
	v.Timeline = append(v.Timeline, entry)
}

// ReadStreams adds wants, timers and failures, and sorts the timeline.
func (v *ObjectStatus) ReadStreams(ctx context.Context, client *broker.Client, now time.Time) error {
	r := Reader{Client: client, Namespace: v.Namespace, Name: v.ConfigMap, Now: now, Objects: v.read}
	found, timers, err := r.Read(ctx)
	if err != nil {
		return err
	}
	for _, k := range found {
		if k.Key != "" {
			v.Keys = append(v.Keys, k)
		}
		if k.Sequence > 0 {
			v.add(k.WantedAt, "wanted", k.Key, k.Cause+": "+k.URL.String())
		}
	}
	for _, t := range timers {
		v.addTimer(t)
	}
	filter := broker.DeadLetterFilter{Namespace: v.Namespace, Name: v.ConfigMap}
	for f, err := range client.DeadLetters(ctx, filter) {
		if err != nil {
			return err
		}
		attempts := printer.Plural(f.Message.GetFailure().GetAttempts(), "attempt")
		detail := fmt.Sprintf("failure %d: %s after %s", f.ID, f.Reason, attempts)
		if of := f.Message.GetReplayOf(); of > 0 {
			detail += fmt.Sprintf(", replay of %d", of)
		}
		v.add(f.At, "gave up", f.Key.Key, detail)
	}
	slices.SortStableFunc(v.Timeline, func(a, b TimelineEntry) int { return a.At.Compare(b.At) })
	return nil
}

// Watcher is the owner of the ConfigMap.
type Watcher struct {
	Name       string             `json:"name"`
	Fetched    string             `json:"fetched,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
