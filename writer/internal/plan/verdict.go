package plan

// Verdict is what became of a result: the word in logs and metric labels, which is
// its name in snake case.
type Verdict string

// Verdicts on a result that the object is in line with.
const (
	// Written: the object was changed: a value, or the status.
	Written Verdict = "written"
	// Unchanged: the object is already as planned.
	Unchanged Verdict = "unchanged"
)

// Verdicts on a result that is given up.
const (
	// Stale: the object no longer asks for it, or holds something newer.
	Stale Verdict = "stale"
	// Gone: the object does not exist any more.
	Gone Verdict = "gone"
	// NotOurs: another field manager owns the key.
	NotOurs Verdict = "not_ours"
	// Refused: it may not, or cannot, be written.
	Refused Verdict = "refused"
)

// Deferred: it was not written now, for a reason that has nothing to do with
// it. It is wanted again.
const Deferred Verdict = "deferred"

// Verdicts returns all verdicts.
func Verdicts() []Verdict {
	return []Verdict{Written, Unchanged, Stale, Gone, NotOurs, Refused, Deferred}
}
