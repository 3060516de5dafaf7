package audit

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// candidate is a want that an audit looks at.
type candidate struct {
	key  pipeline.Key
	want wantindex.Want
	// entry is that of the key in the status of the object.
	entry status.Entry
	// refresh is the interval that the object asks for; 0: none.
	refresh time.Duration
}

// asks are keys that are not held, the oldest first, of which so many are asked for
// as nothing is under way for.
type asks struct {
	of   []candidate
	most int
}

// sorted are the wants by what an audit has to find out.
type sorted struct {
	// asks are wants whose keys do not hold what is asked for.
	asks []asks
	// refreshed are wants with an interval whose keys are held.
	refreshed []candidate
	// behind are held keys whose object holds what a later state of the stream
	// led to: the stream was brought back to a backup, and no result would land.
	behind []pipeline.Key
	// unasked are objects whose wants and annotations do not match.
	unasked []types.NamespacedName
	// stale counts the keys that have been failing for long.
	stale int
	// asked are all that are not held, and waiting those of them that nothing is
	// known to be under way for.
	asked   map[pipeline.Key]asked
	waiting []candidate
	// lifted counts the keys that are held by now and were refused for a reason.
	lifted map[refusal]int
	// rounds is in how many audits all that is refreshed is looked at.
	rounds uint32
}

// sort sorts the wants of the index, without those that something is known to
// be under way for, or that have to wait.
func (a *Auditor) sort(e *evidence) sorted {
	s := newSorted()
	refreshing := a.refreshing
	if a.round == 1 {
		refreshing = a.deps.Index.Len()
	}
	s.rounds = uint32(max(1, refreshing/max(refreshedAtOnce, refreshing/10)))
	a.refreshing = 0
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		if w.Refreshes {
			a.refreshing++
		}
		a.classify(e, &s, key, w)
	})
	a.asked = s.asked
	a.dueWhen(&s, func(c candidate) bool { return e.age(c.want.At) >= a.config.pause(a.asked[c.key].times) })
	a.probe(e, &s)
	return s
}

// sortAsked returns the keys to ask for before the next audit, of those that were
// not held at the last one: what is lost and was too young then, and what was
// refused.
func (a *Auditor) sortAsked(e *evidence) []asks {
	s := newSorted()
	for key := range a.asked {
		if w, ok := a.deps.Index.Want(key); ok {
			a.classify(e, &s, key, w)
		}
	}
	a.asked = s.asked
	a.dueWhen(&s, func(c candidate) bool { return a.asked[c.key].times == 0 && e.age(c.want.At) >= a.config.young() })
	a.probe(e, &s)
	return s.asks
}

func newSorted() sorted {
	return sorted{asked: map[pipeline.Key]asked{}, lifted: map[refusal]int{}, rounds: 1}
}

// classify adds a want to what it belongs to.
func (a *Auditor) classify(e *evidence, s *sorted, key pipeline.Key, w wantindex.Want) {
	name := wantindex.ObjectOf(key)
	o := a.deps.Objects.Get(name)
	url, wanted := "", false
	if o != nil {
		url, wanted = o.Request.URL(key.Key)
	}
	if !wanted {
		s.unasked = append(s.unasked, name)
		return
	}
	c := candidate{key: key, want: w, entry: o.Status.Of(key.Key), refresh: o.Request.Refresh}
	if c.entry.Failing() && condition.FailsForLong(c.entry.Since, c.refresh, e.now) {
		s.stale++
	}
	ask := a.asked[key]
	switch holding(o, annotation.Pair{Key: key.Key, URL: url}, c) {
	case plan.LeftAlone:
	case plan.Held:
		if ask.times > 0 {
			s.lifted[refusal{key.Namespace, ask.reason}]++
		}
		if w.Refreshes && c.entry.Fence.Epoch == w.Fence.Epoch && c.entry.Fence.Seq > e.last {
			s.behind = append(s.behind, key)
		}
		if w.Refreshes && digest(key)%s.rounds == a.round%s.rounds && e.handled(w.Fence.Seq, w.At, a.config.young()) {
			s.refreshed = append(s.refreshed, c)
		}
	case plan.NotHeld:
		if now := appearance(o, c.entry); ask.object != now {
			ask = asked{object: now, reason: c.entry.Error}
		}
		s.asked[key] = ask
		if e.handled(w.Fence.Seq, w.At, a.config.inWork()) {
			s.waiting = append(s.waiting, c)
		}
	}
}

// holding adds to what the object shows by itself what its want shows.
func holding(o *annotated.Object, pair annotation.Pair, c candidate) plan.Holding {
	held := plan.HoldingOf(o, pair)
	if held != plan.Held {
		return held
	}
	fence := c.entry.Fence
	switch {
	case o.Version > 0 && o.Version < c.want.Version:
		// The want was read from a later version of the object than there is:
		// the API server was brought back to a backup.
		return plan.NotHeld
	case c.want.Requested && (fence.Epoch != c.want.Fence.Epoch || fence.Seq < c.want.Fence.Seq):
		// The body that a person asked for has not landed, or was equal. That is
		// found out once: the next want is not one that a person asked for.
		return plan.NotHeld
	}
	return plan.Held
}

// appearance describes an object as far as others than the writer have changed
// it, and what became of the key.
func appearance(o *annotated.Object, entry status.Entry) string {
	version := o.ResourceVersion()
	if !o.EditedAt.IsZero() {
		version = o.EditedAt.String()
	}
	return string(o.UID) + " " + version + " " + entry.Error + " " + entry.SHA256
}

func digest(key pipeline.Key) uint32 {
	h := fnv.New32a()
	for _, part := range []string{key.Namespace, key.Name, key.Key} {
		_, _ = h.Write([]byte(part))
	}
	return h.Sum32()
}
