package engine

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// retryWithin is the time within which keys are tried again whose settings have changed, and retryPause the pause
	// between those of one namespace, unless they are too many for it.
	retryWithin = 50 * time.Second
	retryPause  = 40 * time.Millisecond
	// scanAgain is the pause before the keys are looked at once more, because another fetcher may have
	// used the former settings for a while.
	scanAgain = 2 * time.Minute
	// scanBurst is the maximum number of scans of all timers in a row. Then there is one every scanAgain, because a
	// hundred tokens that are renewed each hour are a change every 36 s.
	scanBurst = 4
)

// RetryOnChange tries keys again that failed under other settings, after the start and after each
// change, until ctx is done.
func (e *Engine) RetryOnChange(ctx context.Context, changed <-chan struct{}) {
	pace := rate.NewLimiter(rate.Every(scanAgain), scanBurst)
	for passes := 1; pace.Wait(ctx) == nil; passes++ {
		n, err := e.RetryChanged(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			e.deps.Log.Warn().Err(err).Msg("cannot look for keys whose settings have changed, they wait for their next try")
		case n > 0:
			e.deps.Log.Info().Int("keys", n).Msg("trying keys again, because policy, credentials or authorities have changed")
		}
		var again <-chan time.Time
		if passes < 2 {
			again = time.After(scanAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			passes = 0
		case <-again:
		}
	}
}

// RetryChanged tries keys again soon that failed under other settings, and returns their number. Of several
// fetchers, the first one sets the timer of a key.
func (e *Engine) RetryChanged(ctx context.Context) (retried int, err error) {
	soon := map[string]time.Duration{} // by namespace
	timers := pipeline.Range{Stream: pipeline.Requests, Subject: pipeline.KindTimer.All()}
	for m, err := range e.deps.Client.Scan(ctx, timers) {
		if err != nil {
			return retried, err
		}
		_, key, err := pipeline.ParseSubject(m.Subject)
		if err != nil {
			continue
		}
		due, err := pipeline.DecodeDue(key, m.Data)
		if err != nil || !e.deps.Getter.SettingsChanged(key.Namespace, due.GetWant().GetUrl(), due.GetSettings()) {
			continue
		}
		now := e.deps.Clock.Now()
		at, err := pipeline.FiresAt(m)
		if err != nil || at.Before(now.Add(retryWithin)) || due.GetWaitsFor() == v1.WaitsFor_WAITS_FOR_PAUSE {
			continue // it is tried soon, or not before its server wants
		}
		wait := soon[key.Namespace]
		soon[key.Namespace] += retryPause
		if wait > retryWithin {
			wait = time.Duration(e.deps.Random() * float64(retryWithin))
		}
		_, err = e.deps.Client.ReplaceTimer(ctx, due, now.Add(wait), m.Sequence)
		switch {
		case errors.Is(err, pipeline.ErrSuperseded): // another fetcher was faster, or the want is a new one
		case err != nil:
			return retried, err
		default:
			retried++
		}
	}
	return retried, nil
}
