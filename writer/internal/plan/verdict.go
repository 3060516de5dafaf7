package plan

// Verdict is what became of a result.
type Verdict int

// The verdicts.
const (
	// Written: the object was changed: a value, or the status.
	Written Verdict = iota + 1
	// Unchanged: the object is already as planned.
	Unchanged
	// Stale: the object no longer asks for it, or holds something newer.
	Stale
	// Gone: the object does not exist any more.
	Gone
	// NotOurs: another field manager owns the key.
	NotOurs
	// Refused: it may not, or cannot, be written.
	Refused
	// Deferred: it was not written now, for a reason that has nothing to do with
	// it. It is wanted again.
	Deferred
)

// String returns the verdict as it stands in logs and metric labels.
func (v Verdict) String() string {
	switch v {
	case Written:
		return "written"
	case Unchanged:
		return "unchanged"
	case Stale:
		return "stale"
	case Gone:
		return "gone"
	case NotOurs:
		return "not_ours"
	case Refused:
		return "refused"
	case Deferred:
		return "deferred"
	}
	return "unknown"
}

// Verdicts returns all verdicts.
func Verdicts() []Verdict {
	return []Verdict{Written, Unchanged, Stale, Gone, NotOurs, Refused, Deferred}
}
