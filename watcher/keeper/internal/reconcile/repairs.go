package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// limit returns the time until a repair is allowed. One Event reports that another controller keeps
// changing the ConfigMap.
func (r *Reconciler) limit(ctx context.Context, in *plan.Input, m *memory) time.Duration {
	if m.digest != in.Plan.Digest && !isRepair(in.Plan, in.Target) {
		return 0
	}
	wait := m.repairs.Wait(r.deps.Clock.Now())
	if wait > 0 && !m.repairs.Reported {
		e := event(in.Plan, pipeline.ReasonContested, "SlowDown", "ConfigMap "+in.Plan.Target.Name+
			" keeps being changed"+cmp.Or(by(in), " by somebody else")+"; it is repaired at growing intervals")
		e.Occurrence = strconv.FormatInt(in.Plan.Generation, 10)
		err := r.record(ctx, e)
		if m.repairs.Reported = err == nil; err != nil {
			r.deps.Log.Warn().Err(err).Msg("could not write an Event")
		}
	}
	return wait
}

// drifted emits the Event for a repaired ConfigMap.
func (r *Reconciler) drifted(ctx context.Context, in *plan.Input) error {
	e := event(in.Plan, pipeline.ReasonDrifted, "Apply",
		fmt.Sprintf("ConfigMap %s was changed%s and has been repaired", in.Plan.Target.Name, by(in)))
	if in.Target == nil {
		e.Note = "ConfigMap " + in.Plan.Target.Name + " was deleted and has been created again"
	}
	e.Occurrence = r.deps.Clock.Now().String()
	return r.record(ctx, e)
}

// by returns the field manager that changed a ConfigMap, if known.
func by(in *plan.Input) string {
	if in.Target == nil || in.Target.Other == "" {
		return ""
	}
	return " by " + in.Target.Other
}
