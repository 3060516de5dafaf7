package engine

import (
	"cmp"
	"errors"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/proto/process/budget"
)

// Config configures an Engine.
type Config struct {
	// MaxAttempts is the maximum number of attempts in a row before a key waits for its next
	// refresh or recheck.
	MaxAttempts uint32
	// MaxUnended is the maximum number of claims of a key in a row without an end, for example
	// because of crashes, before its message becomes a dead letter.
	MaxUnended uint64
	// Retry determines the pauses between attempts.
	Retry Backoff
	// MaxRetryAfter is the maximum pause for Retry-After.
	MaxRetryAfter time.Duration
	// Refresh determines the times of regular fetches.
	Refresh Refresh
	// Recheck is the pause after the last failed attempt of a key without refresh.
	Recheck time.Duration
	// Sharing limits the time and the number of shared GETs.
	Sharing sharedcall.Config
	// ResultBytes is the budget of published bytes of one namespace.
	ResultBytes budget.Config
	// Decoding is the budget of time, in nanoseconds, in which compressed bodies of one namespace are decoded.
	Decoding budget.Config
	// MaxExpressionBody is the maximum size in bytes of a body for rules and selections (0: the default).
	MaxExpressionBody int
	// DeadLetters is the budget of dead letters of one namespace.
	DeadLetters budget.Config
}

// Validate returns the first flag that is out of range.
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
	case c.MaxExpressionBody < 0:
		return errors.New("--max-expression-body must not be negative")
	case c.ResultBytes.Burst < 0:
		return errors.New("--namespace-result-bytes must not be negative")
	case c.DeadLetters.Burst < 0:
		return errors.New("--namespace-dead-letters must not be negative")
	}
	return cmp.Or(c.Retry.Validate(), c.Refresh.Validate())
}
