// Package object reads all that is known of one ConfigMap: what it asks for, and
// what has become of that, in the order of time.
package object

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
	keys "github.com/kv8s/curl-me-that/proto/status"
)

// TimelineEntry is a moment of an object.
type TimelineEntry struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Key    string    `json:"key,omitempty"`
	Detail string    `json:"detail,omitempty"`

	// Colour of What for people.
	Colour printer.Colour `json:"-"`
}

// Asked is one pair of the annotation as programs read it.
type Asked struct {
	Key     string `json:"key"`
	URL     string `json:"url"`
	Refresh string `json:"refresh,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// String writes a pair for people.
func (a Asked) String() string {
	text := a.Key + " = " + a.URL
	if a.Refresh != "" {
		text += ", every " + a.Refresh
	}
	return text
}

// View is an object as programs read it.
type View struct {
	Namespace  string          `json:"namespace"`
	ConfigMap  string          `json:"configMap"`
	Exists     bool            `json:"exists"`
	UID        string          `json:"uid,omitempty"`
	Annotation string          `json:"annotation,omitempty"`
	Asks       []Asked         `json:"asks,omitempty"`
	Problem    string          `json:"problem,omitempty"`
	Suspended  bool            `json:"suspended,omitempty"`
	Watcher    *Watcher        `json:"watcher,omitempty"`
	Timeline   []TimelineEntry `json:"timeline"`
}

// ReadMetadata adds what Kubernetes holds.
func (v *View) ReadMetadata(object *metav1.PartialObjectMetadata) error {
	v.Exists, v.UID = true, string(object.UID)
	v.add(object.CreationTimestamp.Time, "created", "", "", 0)
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		return err
	}
	request, err := grammar.Parse(object.Annotations)
	v.Annotation, v.Suspended = request.Annotation, request.Suspended
	if err != nil {
		v.Problem = err.Error()
	}
	for _, problem := range request.Problems {
		v.Problem = strings.TrimPrefix(v.Problem+"; "+problem.Text, "; ")
	}
	for _, pair := range request.Pairs {
		ask := Asked{Key: pair.Key, URL: deadletter.WithoutQuery(pair.URL), SHA256: request.SHA256[pair.Key]}
		if request.Refresh > 0 {
			ask.Refresh = duration.Format(request.Refresh)
		}
		v.Asks = append(v.Asks, ask)
	}
	v.readStatus(object.Annotations[annotation.StatusKey])
	return nil
}

// readStatus adds what the status annotation has of each key.
func (v *View) readStatus(text string) {
	state, err := keys.Parse(text)
	if err != nil {
		v.Problem = strings.TrimPrefix(v.Problem+"; ", "; ") + "the status annotation cannot be read"
	}
	for _, key := range slices.Sorted(maps.Keys(state.Keys)) {
		e := state.Keys[key]
		if e.Written() {
			v.add(e.FetchedAt, "written", key, fmt.Sprintf("%d bytes, sha256 %s…, from %s", e.Size, e.SHA256[:12], deadletter.WithoutQuery(e.URL)), printer.Green)
		}
		if e.Failing() {
			detail := e.Error
			if message := e.Why().Message; message != "" {
				detail += ": " + message
			}
			if e.Attempts > 0 { // none was made for a key that somebody else has written
				detail += "; " + printer.Plural(int(e.Attempts), "attempt") + " when it was reported"
			}
			v.add(e.Since, "failing since", key, detail, printer.Red)
		}
	}
	if wrong := state.Problem; wrong != nil {
		v.add(wrong.Since, "not followed since", "", wrong.Error, printer.Red)
	}
}

// addChecked adds when a key was last looked at, which is when its timer was set.
func (v *View) addChecked(t operate.Timer) {
	at := condition.Checked(t)
	if at.IsZero() {
		return
	}
	if class := t.Due.GetReported(); class != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		v.add(at, "last checked", t.Key.Key, pipeline.Reason(class), printer.Red)
		return
	}
	v.add(at, "last checked", t.Key.Key, "well", printer.Green)
}

func (v *View) add(at time.Time, what, key, detail string, colour printer.Colour) {
	v.Timeline = append(v.Timeline, TimelineEntry{At: at.UTC(), What: what, Key: key, Detail: detail, Colour: colour})
}

// ReadStreams adds what NATS holds, and puts all in the order of time. Messages
// that cannot be read are left out and counted in unread.
func (v *View) ReadStreams(ctx context.Context, client *operate.Client, unread *readable.Unread) error {
	for w, err := range readable.Only(unread, client.Wants(ctx, v.Namespace, v.ConfigMap)) {
		if err != nil {
			return err
		}
		v.add(w.At, "wanted", w.Key.Key, pipeline.CauseName(w.Want.GetCause())+": "+deadletter.WithoutQuery(w.Want.GetUrl()), printer.Cyan)
	}
	for t, err := range readable.Only(unread, client.Timers(ctx, v.Namespace, v.ConfigMap)) {
		if err != nil {
			return err
		}
		detail := pipeline.CauseName(t.Due.GetCause())
		if waits := condition.WaitsFor(t.Due.GetWaitsFor(), t.Due.GetWant().GetUrl()); waits != "" {
			detail += ", waits for the " + waits
		}
		v.add(t.At, "scheduled", t.Key.Key, detail, printer.Cyan)
		v.addChecked(t)
	}
	for f, err := range readable.Only(unread, client.DeadLetters(ctx, operate.DeadLetterFilter{Namespace: v.Namespace, Name: v.ConfigMap})) {
		if errors.Is(err, context.Canceled) || err != nil {
			return err
		}
		detail := fmt.Sprintf("failure %d: %s after %s", f.ID, f.Reason, printer.Plural(int(f.Message.GetFailure().GetAttempts()), "attempt"))
		if of := f.Message.GetReplayOf(); of > 0 {
			detail += fmt.Sprintf(", replay of %d", of)
		}
		v.add(f.At, "gave up", f.Key.Key, detail, printer.Red)
	}
	slices.SortStableFunc(v.Timeline, func(a, b TimelineEntry) int { return a.At.Compare(b.At) })
	return nil
}
