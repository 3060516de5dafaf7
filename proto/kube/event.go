package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/budget"
)

// Controller is the reporting controller of our Events.
const Controller = "x-kv8s.io/curl-me-that"

const (
	// recordedSize and recordedTTL limit the cache of recent Events. The API server keeps Events for
	// an hour.
	recordedSize = 4096
	recordedTTL  = time.Hour
)

// maxNote is the API's limit for the note of an Event, in bytes.
const maxNote = 1024

// Event reports a change of state of an object to its owner.
type Event struct {
	// APIVersion and Kind of the object (empty means a ConfigMap).
	APIVersion, Kind string
	// Namespace, Name and UID of the object.
	Namespace, Name string
	UID             types.UID
	// Warning: something is wrong.
	Warning bool
	// Reason is one of the known reasons, in CamelCase.
	Reason string
	// Action that was taken or failed, in CamelCase.
	Action string
	// Note is a sentence for people.
	Note string
	// Occurrence distinguishes this change of state from others with the same reason. The same
	// occurrence is written once, however often it is recorded.
	Occurrence string
	// Again is when the state was observed again, which increments the series of an existing Event.
	// Zero means that the Event is written once.
	Again time.Time
}

// EventBudget limits the Events of each namespace. The zero value has no limit.
type EventBudget struct {
	Budget *budget.Budget
	// OverBudget counts the Events over budget (nil: nobody does).
	OverBudget prometheus.Counter
	Log        zerolog.Logger
}

// Take takes one Event from the budget of a namespace, or returns the shortage.
func (e EventBudget) Take(namespace string) *budget.Shortage {
	short := e.Budget.Take(namespace, 1)
	if short != nil && e.OverBudget != nil {
		e.OverBudget.Inc()
	}
	if short != nil && short.First {
		e.Log.Warn().Str("namespace", namespace).Str("budget", budget.Events).
			Msg("namespace exceeded its Event budget, Events are delayed or dropped")
	}
	return short
}

// BindEventBudget adds the flag of the Event budget.
func BindEventBudget(fs *pflag.FlagSet, c *budget.Config) {
	c.Refill = 500 * time.Second
	fs.Int64Var(&c.Burst, "namespace-events", 1000, "Event budget of one namespace, which refills in 500 s (0: no limit)")
}

// Recorder writes Events with core/v1, which accepts the times and counts that kubectl sorts by;
// events.k8s.io/v1 rejects them.
//
// The stock recorder merges Events within one process. This one derives the name of an Event from
// its content, so that the API server prevents duplicates, also after a restart, a redelivered
// message, or from two replicas. Names of recent Events are cached to save the request. A repeated
// observation increments the series of the Event, which also keeps it from expiring.
type Recorder struct {
	client   client.EventsGetter
	instance string
	clock    clock.PassiveClock
	budget   EventBudget
	recorded *cache.LRUExpireCache
}

// NewRecorder returns a recorder for a service.
func NewRecorder(c client.EventsGetter, name string, clock clock.PassiveClock, budget EventBudget) *Recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Recorder{
		client: c, instance: cut(name+"/"+host, 128), clock: clock, budget: budget,
		recorded: cache.NewLRUExpireCacheWithClock(recordedSize, clock),
	}
}

// Record writes an Event, unless it exists or its namespace is being deleted or short of budget. The caller may
// retry after a shortage or an error. written is false, too, if this recorder has written the Event recently.
func (r *Recorder) Record(ctx context.Context, e Event) (written bool, short *budget.Shortage, err error) {
	key := e.Namespace + "/" + e.name()
	if _, recorded := r.recorded.Get(key); recorded && e.Again.IsZero() {
		return false, nil, nil
	}
	if short := r.budget.Take(e.Namespace); short != nil {
		return false, short, nil
	}
	_, err = r.client.Events(e.Namespace).Create(ctx, r.event(e), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err) && !e.Again.IsZero():
		err = r.countUp(ctx, e)
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		err = nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("record Event %s for %s %s/%s: %w", e.Reason, e.kind(), e.Namespace, e.Name, err)
	}
	r.recorded.Add(key, struct{}{}, recordedTTL)
	return true, nil, nil
}

// countUp increments the series of an existing Event and updates its text, unless the series already
// includes this observation. It ignores a different Event with that name, and one that has expired.
func (r *Recorder) countUp(ctx context.Context, e Event) error {
	events := r.client.Events(e.Namespace)
	existing, err := events.Get(ctx, e.name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case existing.ReportingController != Controller || existing.InvolvedObject.UID != e.UID || existing.Reason != e.Reason:
		return nil
	}
	count := int32(1)
	if existing.Series != nil {
		count = existing.Series.Count
	}
	if !last(existing).Before(e.Again.Truncate(time.Microsecond)) || count == math.MaxInt32 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata":      map[string]string{"resourceVersion": existing.ResourceVersion},
		"series":        corev1.EventSeries{Count: count + 1, LastObservedTime: metav1.NewMicroTime(e.Again)},
		"count":         count + 1,
		"message":       e.Note,
		"lastTimestamp": metav1.NewTime(e.Again),
	})
	if err != nil {
		return err
	}
	_, err = events.Patch(ctx, e.name(), types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // on a conflict, another replica counted
		return nil
	}
	return err
}

// last returns the time of the last observation of an Event.
func last(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

func (r *Recorder) event(e Event) *corev1.Event {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	now := r.clock.Now()
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.Namespace, Name: e.name()},
		EventTime:           metav1.NewMicroTime(now),
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
		Count:               1,
		ReportingController: Controller,
		ReportingInstance:   r.instance,
		Action:              e.Action,
		Reason:              e.Reason,
		Type:                kind,
		Message:             cut(e.Note, maxNote),
		InvolvedObject: corev1.ObjectReference{
			APIVersion: cmp.Or(e.APIVersion, "v1"), Kind: e.kind(), Namespace: e.Namespace, Name: e.Name, UID: e.UID,
		},
	}
}

// kind returns the kind of the object.
func (e Event) kind() string { return cmp.Or(e.Kind, "ConfigMap") }

// name derives the name of the Event from its content.
func (e Event) name() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(e.UID), e.Reason, e.Occurrence}, "\x00")))
	return strings.TrimRight(cut(e.Name, 230), "-.") + "." + hex.EncodeToString(sum[:8])
}

// cut returns at most n bytes of s, without a broken character.
func cut(s string, n int) string {
	return strings.ToValidUTF8(s[:min(len(s), n)], "")
}
