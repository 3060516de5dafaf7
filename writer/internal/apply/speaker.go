package apply

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// Recorder writes an Event unless the same has been written before.
type Recorder interface {
	Record(ctx context.Context, e kube.Event) error
}

const (
	// saidSize and saidTTL bound what is remembered of what was said: enough
	// for messages that come back while something is in the way.
	saidSize = 4096
	saidTTL  = 10 * time.Minute
)

// spoken tells what became of Events.
type spoken int

const (
	// said: they were written now.
	said spoken = iota + 1
	// known: this process has written them before.
	known
	// unsaid: they could not be written.
	unsaid
)

// speaker says Events, and spares the API server those that this process knows
// it has said.
type speaker struct {
	recorder Recorder
	known    *cache.LRUExpireCache
	metrics  *Metrics
	muted    atomic.Bool
}

func newSpeaker(r Recorder, clock clock.Clock, m *Metrics) *speaker {
	return &speaker{recorder: r, known: cache.NewLRUExpireCacheWithClock(saidSize, clock), metrics: m}
}

// saying tells Events apart.
type saying struct {
	uid                types.UID
	reason, occurrence string
}

// say says events until one cannot be said.
func (s *speaker) say(ctx context.Context, ref Ref, uid types.UID, events []judge.Event) (spoken, error) {
	result := known
	for _, e := range events {
		what := saying{uid: uid, reason: e.Reason, occurrence: e.Occurrence}
		if _, before := s.known.Get(what); before {
			continue
		}
		if err := s.record(ctx, ref, uid, e); err != nil {
			return unsaid, err
		}
		s.muted.Store(false)
		s.known.Add(what, struct{}{}, saidTTL)
		s.metrics.events.WithLabelValues(e.Reason).Inc()
		result = said
	}
	return result, nil
}

// told tells whether this process has said an Event lately.
func (s *speaker) told(uid types.UID, e judge.Event) bool {
	_, before := s.known.Get(saying{uid: uid, reason: e.Reason, occurrence: e.Occurrence})
	return before
}

// mute notes that Events are refused, and tells whether that is news.
func (s *speaker) mute() bool { return !s.muted.Swap(true) }

func (s *speaker) record(ctx context.Context, ref Ref, uid types.UID, e judge.Event) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.recorder.Record(ctx, kube.Event{
		Namespace: ref.Namespace, Name: ref.Name, UID: uid,
		Warning: e.Warning, Reason: e.Reason, Action: e.Action, Note: e.Note, Occurrence: e.Occurrence,
	})
}
