package process

import (
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// ConsumerHealth adds the part for a consumer. The returned function must be called at each change
// between readable (nil) and not readable. A missing consumer is normal at startup.
func (rt *Runtime) ConsumerHealth(part string) func(error) {
	state := rt.Health.Part(part)
	failed := false
	return func(err error) {
		if err == nil {
			state.Ready()
		} else {
			state.NotReady("cannot read messages from NATS")
		}
		log := rt.Log.With().Str("part", part).Logger()
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
			log.Info().Msg("waiting for the watcher or the setup job to create the streams")
		case err != nil:
			log.Warn().Err(err).Msg("cannot read messages from NATS, retrying")
		case failed:
			log.Info().Msg("reading messages again")
		}
		failed = err != nil
	}
}
