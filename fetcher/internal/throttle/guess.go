package throttle

import "time"

const (
	// maxGuesses bounds the guesses that are remembered, of all hosts together.
	maxGuesses = 16_384
	// maxUnadvanced is for how long a guess puts off at most what will not be
	// advanced: after that something may be known of the host.
	maxUnadvanced = 10 * time.Second
	// advanced is for how long ahead guesses are advanced, each time that a slot
	// comes free.
	advanced = 3 * time.Second
	// worthwhile is by how much sooner a reservation must come to be advanced.
	worthwhile = time.Second
	// overbookBeside is overbook while guesses are advanced, of which more can
	// follow when a slot is idle.
	overbookBeside = 1.15
)

// guesses are reservations of a clock that were made before any GET of the host
// had ended. If the host turns out to be quicker, they are too far apart, and are
// advanced one by one, the last first, as slots come free.
type guesses struct {
	// of are the reservations in the order of their times.
	of []guess
	// distance between them.
	distance time.Duration
	// open reports whether nothing has been measured since the last of them.
	open bool
	// total counts those of all clocks.
	total *int
}

type guess struct {
	waiter *Waiter
	at     time.Time
}

// take reports whether what waits can be advanced, and there is room for it.
func (g *guesses) take(w *Waiter) bool { return w != nil && *g.total < maxGuesses }

func (g *guesses) add(w *Waiter, at time.Time) {
	g.of = append(g.of, guess{waiter: w, at: at})
	*g.total++
}

func (g *guesses) last() (guess, bool) {
	if len(g.of) == 0 {
		return guess{}, false
	}
	return g.of[len(g.of)-1], true
}

// drop forgets all but the first n.
func (g *guesses) drop(n int) {
	if len(g.of) == 0 {
		return
	}
	*g.total -= len(g.of) - n
	g.of = g.of[:n]
	if n == 0 {
		g.of = nil
	}
}

// between returns how far apart reservations are made from next on when slots
// come free at distances of p, and some are for guesses.
func (g *guesses) between(next time.Time, p time.Duration) time.Duration {
	if last, ok := g.last(); !ok || p >= g.distance || !last.at.After(next) {
		return time.Duration(float64(p) / overbook)
	}
	return time.Duration(1 / (overbookBeside/float64(p) - 1/float64(g.distance)))
}
