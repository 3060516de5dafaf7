package apply

import (
	"time"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Retry says when a result that could not be applied comes back.
type Retry int

const (
	// Done: it does not come back.
	Done Retry = iota
	// Soon: only the moment was wrong.
	Soon
	// Later: something must change first that concerns this object only.
	Later
)

// Outcome is what became of a result.
type Outcome struct {
	// Verdict on it, when it is Done.
	Verdict plan.Verdict
	// Retry says whether and when it comes back.
	Retry Retry
	// After is how long the API server asks to be left alone.
	After time.Duration
	// Together is how many results were applied at once.
	Together int
}

// all returns the same outcome for n results.
func all(n int, o Outcome) []Outcome {
	outcomes := make([]Outcome, n)
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}
