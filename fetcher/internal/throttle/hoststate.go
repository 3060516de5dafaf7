package throttle

import "time"

// hostState is what is under way for one host or one namespace.
type hostState struct {
	held int
	// taken is when the last slot was taken.
	taken time.Time
	// returns is how often a slot was given back, and mean the moving average
	// of how long it was held.
	returns uint64
	mean    time.Duration
	// vain tells that somebody has waited while no slot came free.
	vain bool
	// turn is the time given to the last one who was turned away.
	turn time.Time
	// closed is until when the host wants to be left alone.
	closed time.Time
	// waiting are those who wait for a slot of this host, first come first
	// served; elsewhere is how many of this namespace wait for one.
	waiting   []*waiter
	elsewhere int
}

// waiter is given a slot by closing granted. It counts for its namespace from
// then on.
type waiter struct {
	granted   chan struct{}
	namespace *hostState
}

func (l *hostState) take(now time.Time) {
	l.held++
	l.taken = now
}

// observe takes the time into account for which a slot was held. A slow one
// counts at once, a quick one little by little.
func (l *hostState) observe(held time.Duration) {
	l.vain = false
	if held > l.mean {
		l.mean = (l.mean + held) / 2
	} else {
		l.mean -= (l.mean - held) / 4
	}
	l.returns++
}

// pace is how far apart slots come free, as far as is known. Those that are
// held now are held for at least as long as they have been.
func (l *hostState) pace(now time.Time, limit int) time.Duration {
	held := l.mean
	if l.held >= limit {
		held = max(held, now.Sub(l.taken))
	}
	return held / time.Duration(limit)
}

// quick reports whether one more who wants a slot will probably have it within
// patience. A hostState that is not known yet is thought to be quick.
func (l *hostState) quick(now time.Time, limit int, patience time.Duration) bool {
	return !l.vain && l.pace(now, limit)*time.Duration(len(l.waiting)+1) < patience
}

// next returns when to come back: in the order of asking, as far apart as
// slots come free, but not later than longest after the earliest time.
func (l *hostState) next(now time.Time, limit int, shortest, longest time.Duration) time.Duration {
	earliest := now.Add(shortest)
	if l.closed.After(earliest) {
		earliest = l.closed
	}
	latest := earliest.Add(longest - shortest)
	l.turn = l.turn.Add(l.pace(now, limit))
	switch {
	case l.turn.Before(earliest):
		l.turn = earliest
	case l.turn.After(latest):
		// The line is full: begin anew, beside those who have these times.
		l.turn = earliest.Add((longest - shortest) / 2)
	}
	return l.turn.Sub(now)
}

// idle reports whether nothing needs to be known of the hostState.
func (l *hostState) idle(now time.Time) bool {
	return l.held == 0 && len(l.waiting) == 0 && l.elsewhere == 0 && !l.turn.After(now) && !l.closed.After(now)
}

// State of a host, from a closed set.
type State string

// States of hosts. A host is in the first that fits, or in none.
const (
	// Paused: it has asked to be left alone for a while.
	Paused State = "paused"
	// Queued: requests were turned away, and their time to come back is not
	// over.
	Queued State = "queued"
	// Active: GETs are under way.
	Active State = "active"
)

// States returns all states.
func States() []State { return []State{Paused, Queued, Active} }

func (l *hostState) state(now time.Time) State {
	switch {
	case l.closed.After(now):
		return Paused
	case l.turn.After(now):
		return Queued
	case l.held > 0:
		return Active
	}
	return ""
}
