package tracing

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// sender sends spans to a collector, and logs once when that does not work any
// more and once when it works again. It is never an error: the work goes on.
type sender struct {
	next     sdktrace.SpanExporter
	endpoint string
	log      zerolog.Logger
	// abandoned ends what is under way when there is no more time.
	abandoned context.Context //nolint:containedctx // that of all sending, by any caller
	abandon   context.CancelFunc

	mu     sync.Mutex
	failed bool
	lost   int
}

func newSender(next sdktrace.SpanExporter, endpoint string, log zerolog.Logger) *sender {
	s := &sender{next: next, endpoint: endpoint, log: log}
	s.abandoned, s.abandon = context.WithCancel(context.Background()) //nolint:gosec // Provider.Shutdown calls it
	return s
}

// ExportSpans implements sdktrace.SpanExporter.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.abandoned, cancel)() //nolint:contextcheck // ends what ctx allows
	s.logTransition(s.next.ExportSpans(ctx, spans), len(spans))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (s *sender) Shutdown(ctx context.Context) error { return s.next.Shutdown(ctx) }

// logTransition logs a change of state. The text of an error may hold what the
// collector responded, and an address, so that only its kind is logged.
func (s *sender) logTransition(err error, spans int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && s.failed:
		s.log.Info().Str("collector", s.endpoint).Int("lost", s.lost).Msg("traces reach the collector again")
		s.failed, s.lost = false, 0
	case err != nil:
		s.lost += spans
		if !s.failed {
			s.failed = true
			s.log.Warn().Str("collector", s.endpoint).Str("error", kindOf(err)).
				Msg("traces do not reach the collector; working on without them")
		}
	}
}

func kindOf(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "its name does not resolve"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer in time"
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return "no connection"
	}
	if errors.Is(err, context.Canceled) {
		return "no time is left"
	}
	return "it does not take them"
}
