package plan

// Verdict is the outcome of a result, as in logs and metric labels.
type Verdict string

// Verdicts on a result that the object now reflects.
const (
	// Written means that a value or the status was changed.
	Written Verdict = "written"
	// Unchanged means that the object was already as planned.
	Unchanged Verdict = "unchanged"
)

// Verdicts on a result that is dropped.
const (
	// Stale means that the annotation has changed since, or that the object has a newer result.
	Stale Verdict = "stale"
	// Gone means that the object does not exist any more.
	Gone Verdict = "gone"
	// NotOurs means that another field manager owns the key.
	NotOurs Verdict = "not_ours"
	// Refused means that the API server does not accept the write.
	Refused Verdict = "refused"
)

// Deferred means that the result was not written for an unrelated reason. The watcher publishes its want again.
const Deferred Verdict = "deferred"

// Verdicts returns all verdicts.
func Verdicts() []Verdict {
	return []Verdict{Written, Unchanged, Stale, Gone, NotOurs, Refused, Deferred}
}
