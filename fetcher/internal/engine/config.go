package engine

import (
	"cmp"
	"errors"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/proto/process/budget"
)

// Config is what may be chosen about the handling of messages.
type Config struct {
	// MaxAttempts in a row before a key waits for its next refresh or recheck.
	MaxAttempts uint32
	// MaxUnended is how many claims of a key in a row may stay without an end, as by a
	// crash, before its message becomes a dead letter.
	MaxUnended uint64
	// Retry spaces the attempts.
	Retry schedule.Backoff
	// MaxRetryAfter bounds what a server may ask for by Retry-After.
	MaxRetryAfter time.Duration
	// Refresh spaces regular fetches.
	Refresh schedule.Refresh
	// Recheck is after what time a key without refresh is tried again when all
	// attempts have failed.
	Recheck time.Duration
	// Sharing bounds how long and how many outcomes of GETs are shared.
	Sharing sharedcall.Config
	// ResultBytes is what the bodies may come to that are published for one
	// namespace.
	ResultBytes budget.Config
	// DeadLetters is how many are kept for one namespace.
	DeadLetters budget.Config
}

// Validate checks the configuration, and names the flag of what is out of range.
func (c Config) Validate() error {
	switch {
	case c.MaxAttempts < 1:
		return errors.New("--max-attempts must be at least 1")
	case c.MaxUnended < 1:
		return errors.New("--max-deliver must be at least 1")
	case c.MaxRetryAfter <= 0:
		return errors.New("--max-retry-after must be positive")
	case c.Recheck <= 0:
		return errors.New("--recheck must be positive")
	case c.ResultBytes.Burst < 0:
		return errors.New("--namespace-result-bytes must not be negative")
	case c.DeadLetters.Burst < 0:
		return errors.New("--namespace-dead-letters must not be negative")
	}
	return cmp.Or(c.Retry.Validate(), c.Refresh.Validate(), c.Sharing.Validate(), c.ResultBytes.Validate(), c.DeadLetters.Validate())
}
