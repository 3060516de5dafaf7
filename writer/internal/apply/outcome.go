package apply

import (
	"time"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Outcome tells what happened to a result.
type Outcome struct {
	// Verdict is empty if Unavailable.
	Verdict plan.Verdict
	// Unavailable means that the result was not applied because the API server was unavailable. A result that
	// was refused because of its own object has a verdict instead.
	Unavailable bool
	// After is the pause that the API server requested.
	After time.Duration
	// Together is the number of results in the batch.
	Together int
}
