package reconcile

import "time"

// Repairs of one ConfigMap in a row.
type Repairs = repairs

// Count counts a repair.
func (r *repairs) Count(now time.Time) { r.count(now) }

// Wait returns how long the next one has to wait.
func (r *repairs) Wait(now time.Time) time.Duration { return r.wait(now) }
