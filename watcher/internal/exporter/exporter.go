// Package exporter exposes the state of streams and consumers as metrics. Only the leader does so,
// and it reads the state once per interval, however often it is scraped.
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
	// interval is the default time between two readings.
	interval = 15 * time.Second
	// lookTimeout is the timeout of one reading.
	lookTimeout = 5 * time.Second
)

// Config of an Exporter.
type Config struct {
	// Monitors are the monitoring addresses of the NATS servers, which report their disk sync; may
	// be empty.
	Monitors []string
	// Interval between readings; 0: the default.
	Interval time.Duration
}

// Deps are the dependencies of an Exporter.
type Deps struct {
	Client *pipeline.Client
	Clock  clock.WithTicker
	Log    zerolog.Logger
}

// Exporter reads the state of the pipeline while it runs.
type Exporter struct {
	config Config
	deps   Deps
	last   atomic.Pointer[snapshot]
}

// New returns an exporter that does not run yet.
func New(c Config, d Deps) *Exporter {
	if c.Interval == 0 {
		c.Interval = interval
	}
	return &Exporter{config: c, deps: d}
}

// Run reads the state until ctx is done. Afterwards the metrics have no series, because another
// watcher has them.
func (e *Exporter) Run(ctx context.Context) {
	defer e.last.Store(nil)
	ticker := e.deps.Clock.NewTicker(e.config.Interval)
	defer ticker.Stop()
	for failing := false; ; {
		s, err := e.look(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			e.deps.Log.Warn().Err(err).Msg("the state of the pipeline cannot be read, its metrics are absent until it can")
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
