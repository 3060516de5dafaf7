// Package budget bounds how much of something each namespace may use up, so that
// one of them cannot use up what all share.
package budget

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// recovered is the part of a budget that must be there again, as one in so
	// many, before a namespace counts as within it: else it would be over it and
	// within it in turns, with each single use.
	recovered = 10
	// smoothing is how slowly the mean of what is used up at a time follows.
	smoothing = 8
	// sweepAt is the number of namespaces above which idle ones are looked for
	// and dropped.
	sweepAt = 1024
)

// Names of budgets, in logs and metric labels.
const (
	Writes     = "writes"
	WriteBytes = "write_bytes"
	Events     = "events"
)

// Config is how much a namespace may use up.
type Config struct {
	// Burst is what may be used up at once; zero: there is no bound.
	Burst int64
	// Refill is the time in which a budget that is used up is whole again.
	Refill time.Duration
}

// Validate checks the bounds.
func (c Config) Validate() error {
	switch {
	case c.Burst < 0:
		return errors.New("budget of a namespace must not be negative")
	case c.Burst > 0 && c.Refill <= 0:
		return errors.New("time in which a budget is whole again must be positive")
	}
	return nil
}

// rate returns how much comes back in a second.
func (c Config) rate() rate.Limit { return rate.Limit(float64(c.Burst) / c.Refill.Seconds()) }

// Shortage is that a namespace is over its budget.
type Shortage struct {
	// Wait until there is enough again.
	Wait time.Duration
	// First reports whether the namespace was within its budget until now.
	First bool
}

// Budget keeps what is left for each namespace. It is safe for concurrent use.
type Budget struct {
	cfg Config
	now func() time.Time

	mu         sync.Mutex
	namespaces map[string]*account
	nextSweep  int
}

// account is what is known of a namespace.
type account struct {
	left *rate.Limiter
	// need is what must be there before the namespace is within its budget
	// again; zero: it is.
	need float64
	// mean of what is used up at a time, and next is the time that is given to
	// the next that has to come back.
	mean float64
	next time.Time
}

// New returns a budget that is whole for each namespace, by the clock now.
func New(cfg Config, now func() time.Time) (*Budget, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Budget{cfg: cfg, now: now, namespaces: map[string]*account{}, nextSweep: sweepAt}, nil
}

// Take uses up n if there is as much, or returns the shortage. What is larger
// than the whole budget takes the whole.
func (b *Budget) Take(namespace string, n int64) (s *Shortage) {
	b.with(namespace, func(a *account, now time.Time) {
		n := min(n, b.cfg.Burst)
		if a.need > 0 || !a.left.AllowN(now, int(n)) {
			s = b.short(a, n, now)
		}
	})
	return s
}

// Check returns the shortage if nothing is left. It is for what is of a size
// that is known only when it is there, and is then given to Spend. Each that is
// refused gets a time of its own, as far after the last as what it is
// likely to use up takes to come back.
func (b *Budget) Check(namespace string) (s *Shortage) {
	b.with(namespace, func(a *account, now time.Time) {
		if a.left.TokensAt(now) > 0 {
			return
		}
		s = b.short(a, 1, now)
		at := now.Add(b.in(1 - a.left.TokensAt(now)))
		if a.next.After(at) {
			at = a.next
		}
		a.next = at.Add(b.in(a.mean))
		s.Wait = at.Sub(now)
	})
	return s
}

// Spend uses up n, though there may not be as much: what is missing then has to
// come back first.
func (b *Budget) Spend(namespace string, n int64) {
	b.with(namespace, func(a *account, now time.Time) {
		a.left.ReserveN(now, int(min(n, b.cfg.Burst)))
		a.mean += (float64(n) - a.mean) / smoothing
	})
}

// with hands over the account of a namespace, if there is a bound.
func (b *Budget) with(namespace string, use func(a *account, now time.Time)) {
	if b.cfg.Burst == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	use(b.account(namespace, now), now)
}

// short notes that a namespace is over its budget, as n is not there.
func (b *Budget) short(a *account, n int64, now time.Time) *Shortage {
	first := a.need == 0
	a.need = max(a.need, float64(b.cfg.Burst)/recovered, float64(n))
	return &Shortage{First: first, Wait: b.in(a.need - a.left.TokensAt(now))}
}

// in returns the time in which an amount comes back.
func (b *Budget) in(amount float64) time.Duration {
	return time.Duration(max(0, amount) / float64(b.cfg.rate()) * float64(time.Second))
}

// account returns that of a namespace, as it is now.
func (b *Budget) account(namespace string, now time.Time) *account {
	b.sweep(now)
	a, ok := b.namespaces[namespace]
	if !ok {
		a = &account{left: rate.NewLimiter(b.cfg.rate(), int(b.cfg.Burst))}
		b.namespaces[namespace] = a
	}
	if a.left.TokensAt(now) >= a.need {
		a.need = 0
	}
	return a
}

// sweep drops namespaces whose budget is whole once there are many: one that
// is made anew is the same.
func (b *Budget) sweep(now time.Time) {
	if len(b.namespaces) < b.nextSweep {
		return
	}
	for name, a := range b.namespaces {
		if a.left.TokensAt(now) >= float64(b.cfg.Burst) {
			delete(b.namespaces, name)
		}
	}
	b.nextSweep = max(sweepAt, 2*len(b.namespaces))
}
