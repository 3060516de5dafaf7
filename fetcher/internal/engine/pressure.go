package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// relief is how long a stream must have taken all that was published before it
// counts as well again: one that is full has room for a message now and then.
const relief = 10 * time.Second

// pressure says once when a stream stops taking messages, and once when it
// takes them again.
type pressure struct {
	log zerolog.Logger

	mu sync.Mutex
	// felt is when a stream last took no message.
	felt map[string]time.Time
}

func newPressure(log zerolog.Logger) *pressure {
	return &pressure{log: log, felt: map[string]time.Time{}}
}

// feel notes that a stream took no message.
func (p *pressure) feel(stream string, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.felt[stream]
	p.felt[stream] = now
	if known {
		return
	}
	text := "the broker does not answer; keeping what is in work until it does"
	switch {
	case errors.Is(err, pipeline.ErrFull):
		text = "the stream is full; keeping what is in work until there is room"
	case errors.Is(err, pipeline.ErrInFlight):
		text = "the broker has another publish in flight; keeping what is in work until that has ended"
	}
	p.log.Warn().Err(err).Str("stream", stream).Msg(text)
}

// relieve notes that a stream took a message.
func (p *pressure) relieve(stream string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if felt, ok := p.felt[stream]; ok && now.Sub(felt) >= relief {
		delete(p.felt, stream)
		p.log.Info().Str("stream", stream).Msg("the broker takes messages again")
	}
}
