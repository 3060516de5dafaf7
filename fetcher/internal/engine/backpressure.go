package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// quietFor is how long a stream must accept all messages before it counts as available again. A full
// stream sometimes has room for one.
const quietFor = 10 * time.Second

// backpressure logs once when a stream stops accepting messages, and once when it accepts them
// again.
type backpressure struct {
	log zerolog.Logger

	mu sync.Mutex
	// rejectedAt is the time of the last rejection by stream.
	rejectedAt map[string]time.Time
}

func newBackpressure(log zerolog.Logger) *backpressure {
	return &backpressure{log: log, rejectedAt: map[string]time.Time{}}
}

func (b *backpressure) rejected(stream string, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.rejectedAt[stream]
	b.rejectedAt[stream] = now
	if known {
		return
	}
	text := "the broker does not respond, keeping work in flight until it does"
	switch {
	case stream == pipeline.Failures:
		text = "dead letters cannot be stored and are dropped, so these failures cannot be replayed"
	case errors.Is(err, pipeline.ErrFull):
		text = "the stream is full, keeping work in flight until there is room"
	case errors.Is(err, pipeline.ErrInFlight):
		text = "the broker has another publish in flight, keeping work in flight until that has ended"
	}
	b.log.Warn().Err(err).Str("stream", stream).Msg(text)
}

// rejectedSince reports whether a stream has rejected a message since a time.
func (b *backpressure) rejectedSince(stream string, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.rejectedAt[stream]
	return ok && at.After(since)
}

func (b *backpressure) accepted(stream string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.rejectedAt[stream]; ok && now.Sub(at) >= quietFor {
		delete(b.rejectedAt, stream)
		b.log.Info().Str("stream", stream).Msg("the broker takes messages again")
	}
}
