package reconcile

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/condition"
)

const (
	// freeRepairs is how many repairs in a row are made at once.
	freeRepairs = 3
	// The pause between further ones grows from repairPause to maxRepairPause.
	repairPause    = 10 * time.Second
	maxRepairPause = 10 * time.Minute
	// repairsForgotten is how long a ConfigMap must be left alone for its repairs
	// to be forgotten.
	repairsForgotten = 2 * maxRepairPause
)

// repairs of one ConfigMap in a row.
type repairs struct {
	last   time.Time
	number int
}

// count counts one.
func (r *repairs) count(now time.Time) {
	if now.Sub(r.last) > repairsForgotten {
		r.number = 0
	}
	r.number++
	r.last = now
}

// wait returns how long the next one has to wait.
func (r *repairs) wait(now time.Time) time.Duration {
	if r.number < freeRepairs || now.Sub(r.last) > repairsForgotten {
		return 0
	}
	return max(0, min(repairPause<<min(r.number-freeRepairs, 10), maxRepairPause)-now.Sub(r.last))
}

// limit returns how long a repair has to wait, since another controller writes the
// same ConfigMap and it would go on for ever at full speed. One Event reports that.
func (r *Reconciler) limit(ctx context.Context, in *condition.Input, m *memory) time.Duration {
	if m.digest != in.Plan.Digest() && !isRepair(in.Plan, in.Target) {
		return 0
	}
	wait := m.repairs.wait(r.deps.Clock.Now())
	if wait > 0 && m.repairs.number == freeRepairs {
		e := event(in.Plan, pipeline.ReasonContested, "SlowDown", "ConfigMap "+in.Plan.Target.Name+
			" keeps being changed by somebody else"+by(in)+"; it is repaired at growing intervals")
		e.Occurrence = strconv.FormatInt(in.Plan.Generation, 10)
		if err := r.record(ctx, e); err != nil {
			r.deps.Log.Warn().Err(err).Msg("an Event could not be recorded")
		}
	}
	return wait
}

// drifted emits that a ConfigMap was repaired.
func (r *Reconciler) drifted(ctx context.Context, in *condition.Input) error {
	e := event(in.Plan, pipeline.ReasonDrifted, "Apply",
		fmt.Sprintf("ConfigMap %s was changed%s, and is as the Watcher has it again", in.Plan.Target.Name, by(in)))
	if in.Target == nil {
		e.Note = "ConfigMap " + in.Plan.Target.Name + " was deleted, and is made again"
	}
	e.Occurrence = r.deps.Clock.Now().String()
	return r.record(ctx, e)
}

// by names who changed a ConfigMap, as far as that is known.
func by(in *condition.Input) string {
	if in.Target == nil || in.Target.Other == "" {
		return ""
	}
	return " by " + in.Target.Other
}
