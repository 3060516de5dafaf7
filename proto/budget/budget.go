// Package budget limits the consumption of each namespace, so that no namespace can exhaust a
// shared resource.
package budget

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// recovered is the reciprocal of the fraction of a budget that must be refilled before a
	// namespace counts as within it again. Otherwise each single use would change that.
	recovered = 10
	// smoothing is the weight of past uses in the mean.
	smoothing = 8
	// sweepAt is the number of namespaces above which idle ones are dropped.
	sweepAt = 1024
)

// Names of budgets in logs and metric labels.
const (
	Writes      = "writes"
	WriteBytes  = "write_bytes"
	Events      = "events"
	DeadLetters = "dead_letters"
)

// Config has the limits of a namespace.
type Config struct {
	// Burst is the maximum use at once (zero means no limit).
	Burst int64
	// Refill is the time in which an empty budget is refilled.
	Refill time.Duration
}

// rate returns the refill per second.
func (c Config) rate() rate.Limit { return rate.Limit(float64(c.Burst) / c.Refill.Seconds()) }

// Shortage means that a namespace exceeded its budget.
type Shortage struct {
	// Wait is how long it takes until the budget is sufficient again.
	Wait time.Duration
	// First reports whether the namespace was within its budget until now.
	First bool
}

// Budget tracks the budgets of all namespaces. It is safe for concurrent use. Nil means no limit.
type Budget struct {
	cfg Config
	now func() time.Time

	mu         sync.Mutex
	namespaces map[string]*account
	nextSweep  int
}

// account is the state of a namespace.
type account struct {
	left *rate.Limiter
	// need is the balance at which the namespace is within its budget again (zero if it is).
	need float64
	mean float64 // of past uses
	// next is when the next caller without budget may try again.
	next time.Time
}

// New returns full budgets for all namespaces. The limits must be valid.
func New(cfg Config, now func() time.Time) *Budget {
	return &Budget{cfg: cfg, now: now, namespaces: map[string]*account{}, nextSweep: sweepAt}
}

// Take uses n if the balance is sufficient, or returns the shortage. A use larger than the whole
// budget takes the whole budget.
func (b *Budget) Take(namespace string, n int64) (s *Shortage) {
	b.with(namespace, func(a *account, now time.Time) {
		n := min(n, b.cfg.Burst)
		if a.need > 0 || !a.left.AllowN(now, int(n)) {
			s = b.short(a, n, now)
		}
	})
	return s
}

// Check returns the shortage if the budget is empty. It is for uses of unknown size, which Spend
// records afterwards. Callers without budget get different times, spaced by the refill time of a mean use.
func (b *Budget) Check(namespace string) (s *Shortage) {
	b.with(namespace, func(a *account, now time.Time) {
		if a.left.TokensAt(now) > 0 {
			return
		}
		s = b.short(a, 1, now)
		at := now.Add(b.refillTime(1 - a.left.TokensAt(now)))
		if a.next.After(at) {
			at = a.next
		}
		a.next = at.Add(b.refillTime(a.mean))
		s.Wait = at.Sub(now)
	})
	return s
}

// Spend uses n even if the balance is insufficient. The debt, of any size, must be refilled first.
func (b *Budget) Spend(namespace string, n int64) {
	b.with(namespace, func(a *account, now time.Time) {
		a.left.SetBurstAt(now, int(max(n, b.cfg.Burst)))
		a.left.ReserveN(now, int(n))
		a.left.SetBurstAt(now, int(b.cfg.Burst))
		a.mean += (float64(n) - a.mean) / smoothing
	})
}

// with calls use with the account of a namespace, if there is a limit.
func (b *Budget) with(namespace string, use func(a *account, now time.Time)) {
	if b == nil || b.cfg.Burst == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	use(b.account(namespace, now), now)
}

// short records that a namespace exceeded its budget, because n is not available.
func (b *Budget) short(a *account, n int64, now time.Time) *Shortage {
	first := a.need == 0
	a.need = max(a.need, float64(b.cfg.Burst)/recovered, float64(n))
	return &Shortage{First: first, Wait: b.refillTime(a.need - a.left.TokensAt(now))}
}

// refillTime returns the time in which an amount is refilled.
func (b *Budget) refillTime(amount float64) time.Duration {
	return time.Duration(max(0, amount) / float64(b.cfg.rate()) * float64(time.Second))
}

// account returns the current account of a namespace.
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

// sweep drops namespaces with a full budget once there are many, because a new account is the same.
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
