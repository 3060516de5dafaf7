package apply

import (
	"time"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Outcome is what became of a result.
type Outcome struct {
	// Verdict on it, unless the API server was Unavailable.
	Verdict plan.Verdict
	// Unavailable: the API server was, and the result was not applied. All that
	// is refused for reasons of its own object has a verdict instead.
	Unavailable bool
	// After is for how long the API server asks for no requests.
	After time.Duration
	// Together is how many results were applied at once.
	Together int
}
