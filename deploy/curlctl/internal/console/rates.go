package console

import (
	"sync"

	"golang.org/x/time/rate"
)

// How many requests each may make: so many a second, and so many at once.
const (
	requestsSecond = 20
	requestsBurst  = 60
	// ratesMost bounds how many are remembered. When there are more, all begin anew.
	ratesMost = 1000
)

// rates bound how often each one asks: a person by name, or, before the sign-in, an
// address. The zero value is ready.
type rates struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// allow reports whether one may make another request now.
func (r *rates) allow(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter := r.all[who]
	if limiter == nil {
		if r.all == nil || len(r.all) >= ratesMost {
			r.all = map[string]*rate.Limiter{}
		}
		limiter = rate.NewLimiter(requestsSecond, requestsBurst)
		r.all[who] = limiter
	}
	return limiter.Allow()
}
