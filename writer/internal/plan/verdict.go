package plan

// Verdict is the outcome of a result, as in logs and metric labels.
type Verdict string

// Verdicts on a result that the object has now.
const (
	// Written means that a value or the status was changed.
	Written Verdict = "written"
	// Unchanged means that the object was already as planned.
	Unchanged Verdict = "unchanged"
)

// Verdicts on a result that is given up.
const (
	// Stale means that the object is no longer annotated with it, or holds something newer.
	Stale Verdict = "stale"
	// Gone means that the object does not exist any more.
	Gone Verdict = "gone"
	// NotOurs means that another field manager owns the key.
	NotOurs Verdict = "not_ours"
	// Refused means that the API server does not accept it.
	Refused Verdict = "refused"
)

// Deferred means that it was not written for an unrelated reason. The watcher publishes it again.
const Deferred Verdict = "deferred"

// Verdicts returns all verdicts.
func Verdicts() []Verdict {
	return []Verdict{Written, Unchanged, Stale, Gone, NotOurs, Refused, Deferred}
}
