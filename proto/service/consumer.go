package service

import (
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// ConsumerHealth adds the part for a consumer and returns the function to call
// at each change in whether messages can be read from it, with nil when they
// can. A consumer that does not exist yet is an ordinary wait at a start, not a
// fault.
func (rt *Runtime) ConsumerHealth(part string) func(error) {
	state := rt.Health.Part(part)
	failed := false
	return func(err error) {
		if err == nil {
			state.Ready()
		} else {
			state.NotReady("no messages can be read from NATS")
		}
		log := rt.Log.With().Str("part", part).Logger()
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
			log.Info().Msg("waiting for the watcher or the setup job to create the streams")
		case err != nil:
			log.Warn().Err(err).Msg("no messages can be read from NATS; trying until there are")
		case failed:
			log.Info().Msg("messages can be read again")
		}
		failed = err != nil
	}
}
