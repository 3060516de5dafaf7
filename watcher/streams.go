package watcher

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// streams manages the streams according to --manage-streams.
type streams struct {
	js     jetstream.JetStream
	config Config
	clock  *pipeline.Clock
	log    zerolog.Logger
}

// epoch creates the streams if necessary, sets the clock and returns the epoch of the stream of requests.
func (s *streams) epoch(ctx context.Context) (int64, error) {
	if s.config.ManageStreams != manageOff {
		topology := s.config.Streams
		topology.KeepExisting = s.config.ManageStreams == manageCreate
		topology.OnHistoryRejected = func(err error) {
			s.log.Warn().Err(err).Msg("the history was not set up, so curlctl rollback may not work; " +
				"--history-bytes=0 asks for none")
		}
		if _, err := pipeline.Ensure(ctx, s.js, topology); err != nil {
			return 0, err
		}
	}
	stream, err := s.js.Stream(ctx, pipeline.Requests)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", pipeline.Requests, err)
	}
	s.clock.Set(stream.CachedInfo().TimeStamp)
	return stream.CachedInfo().Created.UnixMilli(), nil
}

// brokerTime is the broker's clock, because the machine's clock may be wrong. Until the broker has
// responded, it shows the machine's time. Tickers use the machine's clock.
type brokerTime struct {
	clock.WithTicker
	broker *pipeline.Clock
}

// Now returns the broker's time.
func (b brokerTime) Now() time.Time {
	if now := b.broker.Now(); !now.IsZero() {
		return now
	}
	return b.WithTicker.Now()
}

// Since returns the time since t on the broker's clock.
func (b brokerTime) Since(t time.Time) time.Duration { return b.Now().Sub(t) }
