package engine

import (
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/proto/process/budget"
)

// Config configures an Engine.
type Config struct {
	Schedule

	// Sharing limits the time and the number of shared GETs.
	Sharing sharedcall.Config
	// ResultBytes is the budget of published bytes of one namespace.
	ResultBytes budget.Config
	// Processing is the budget of time, in nanoseconds, in which bodies of one namespace are decompressed and rules and
	// selections evaluated. Only one evaluation runs at a time, so the rules of one namespace could delay all others.
	Processing budget.Config
	// DeadLetters is the budget of dead letters of one namespace.
	DeadLetters budget.Config
}
