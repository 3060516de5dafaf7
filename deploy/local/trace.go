package local

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// tracer returns the tracer of a service and a function that sends the remaining spans.
func (c *Config) tracer(ctx context.Context, name string, log zerolog.Logger) (*tracing.Tracer, func()) {
	if c.Spans != nil { // the caller has them already
		return tracing.New(ctx, name, process.BuildVersion(), c.Spans).Tracer(), func() {}
	}
	provider := tracing.FromEnv(ctx, name, process.BuildVersion(), log.With().Str("service", name).Logger())
	return provider.Tracer(), func() { provider.Shutdown(context.WithoutCancel(ctx)) }
}
