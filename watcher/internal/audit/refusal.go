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

// dueWhen takes those that are due out of what waits: all that was lost, and of what
// was asked for before so many of each namespace.
func (a *Auditor) dueWhen(s *sorted, due func(candidate) bool) {
	slices.SortFunc(s.waiting, func(x, y candidate) int { return cmp.Compare(x.want.Fence.Seq, y.want.Fence.Seq) })
	rest := s.waiting[:0]
	var lost []candidate
	again := map[string][]candidate{}
	for _, c := range s.waiting {
		switch {
		case !due(c):
			rest = append(rest, c)
		case a.asked[c.key].times == 0:
			lost = append(lost, c)
		default:
			again[c.key.Namespace] = append(again[c.key.Namespace], c)
		}
	}
	s.waiting, s.asks = rest, append(s.asks, asks{lost, len(lost)})
	for _, candidates := range again {
		s.asks = append(s.asks, asks{candidates, perNamespace})
	}
}

// probe adds keys that were refused and would have to wait for longer than an
// audit: a few for each refusal, those first that have waited longest, and more for
// each key that is held again. A cause that is gone so is found soon, and
// thousands of keys with one that stays cost little.
func (a *Auditor) probe(e *evidence, s *sorted) {
	waiting := map[refusal][]candidate{}
	for _, c := range s.waiting {
		ask := a.asked[c.key]
		r := refusal{c.key.Namespace, ask.reason}
		if ask.times > 0 && r.elsewhere() && e.age(c.want.At) >= a.config.young() {
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
		if n > 0 {
			s.asks = append(s.asks, asks{candidates, n})
		}
	}
	a.probed = probed
}
