package console

import (
	"sync"

	"golang.org/x/time/rate"
)

// Limits of requests per person or address.
const (
	requestsSecond = 20
	requestsBurst  = 60
	// ratesMost is the maximum number of limiters. When there are more, all are reset.
	ratesMost = 1000
)

// rates limits requests by the name of a person, or by address before the sign-in. The zero value is
// ready.
type rates struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// allow reports whether another request is allowed now.
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
