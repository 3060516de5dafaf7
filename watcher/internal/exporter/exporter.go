// Package exporter shows the state of the pipeline as metrics: what the broker
// knows of its streams and consumers. One watcher does so for all, the one that
// leads, and asks the broker at most once per interval however often it is
// asked itself.
package exporter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// interval is how often the broker is asked.
	interval = 15 * time.Second
	// lookTimeout bounds one round of questions.
	lookTimeout = 5 * time.Second
)

// Config of an Exporter.
type Config struct {
	// Monitors are the addresses of the monitoring ports of NATS servers, by
	// which it is seen how soon they write to disk; none: that stays unknown.
	Monitors []string
	// Interval between requests to the broker; 0: interval.
	Interval time.Duration
}

// Deps are what an Exporter works with.
type Deps struct {
	// Client reads the streams.
	Client *pipeline.Client
	Clock  clock.WithTicker
	Log    zerolog.Logger
}

// Exporter looks at the pipeline while it runs.
type Exporter struct {
	config Config
	deps   Deps
	last   atomic.Pointer[snapshot]
	// blindUntil is when the state of the stream of the audit is asked for again,
	// which could not be read; zero: it can be.
	blindUntil time.Time
}

// New returns an exporter that does not run.
func New(c Config, d Deps) *Exporter {
	if c.Interval == 0 {
		c.Interval = interval
	}
	return &Exporter{config: c, deps: d}
}

// Run looks at the pipeline until ctx is done. After that the metrics have no
// series: another watcher has them.
func (e *Exporter) Run(ctx context.Context) {
	defer e.last.Store(nil)
	e.blindUntil = time.Time{}
	ticker := e.deps.Clock.NewTicker(e.config.Interval)
	defer ticker.Stop()
	for failing := false; ; {
		s, err := e.look(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			e.deps.Log.Warn().Err(err).Msg("the state of the pipeline cannot be read; its metrics are absent until it can")
		case err == nil && failing:
			e.deps.Log.Info().Msg("the state of the pipeline can be read again")
		}
		failing = err != nil
		e.last.Store(s)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
