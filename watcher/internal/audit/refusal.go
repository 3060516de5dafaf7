package audit

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// probesOf is of how many refused keys one is asked for before its time.
	probesOf = 100
	// perLifted is how many are asked for at once for each that is held again.
	perLifted = 32
)

// refusal is why keys of a namespace are not held, as far as it can be known: with
// the same reason in their status, if there is any.
type refusal struct{ namespace, reason string }

// elsewhere reports whether the cause may be outside of the object, such as a Role
// that is missing, a quota or a webhook: then no edit of the object shows that it
// has gone.
func (r refusal) elsewhere() bool {
	return r.reason != pipeline.Reason(v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE)
}

// probeEvery is how often the refusals of a namespace are probed.
func (c Config) probeEvery() time.Duration { return c.Interval / 2 }

// dueWhen takes those that are due out of what waits.
func (s *sorted) dueWhen(due func(candidate) bool) {
	slices.SortFunc(s.waiting, func(x, y candidate) int { return cmp.Compare(x.want.Fence.Seq, y.want.Fence.Seq) })
	rest := s.waiting[:0]
	for _, c := range s.waiting {
		if due(c) {
			s.notHeld[c.key.Namespace] = append(s.notHeld[c.key.Namespace], c)
		} else {
			rest = append(rest, c)
		}
	}
	s.waiting = rest
}

// probe adds keys that were refused and would have to wait for longer than an
// audit: a few for each refusal, those first that have waited longest, and more for
// each key that is held again. A cause that is gone so is found soon, and
// thousands of keys with one that stays cost little.
func (a *Auditor) probe(e *evidence, s *sorted) {
	waiting := map[refusal][]candidate{}
	for _, c := range s.waiting {
		ask := a.asked[c.key]
		if r := (refusal{c.key.Namespace, ask.reason}); ask.times > 0 && r.elsewhere() {
			waiting[r] = append(waiting[r], c)
		}
	}
	probed := map[refusal]time.Time{}
	for r, candidates := range waiting {
		n := perLifted * s.lifted[r]
		probed[r] = a.probed[r]
		if n == 0 && e.age(a.probed[r]) >= a.config.probeEvery() {
			n, probed[r] = 1+len(candidates)/probesOf, e.now
		}
		s.notHeld[r.namespace] = append(s.notHeld[r.namespace], candidates[:min(n, len(candidates))]...)
	}
	a.probed = probed
}
