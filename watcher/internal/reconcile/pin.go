package reconcile

import (
	"context"
	"errors"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

const (
	// lookup is the maximum time to look for the pinned bodies of an object in the history.
	lookup = time.Second
	// rest is how long all pinned keys are fetched after the history did not respond.
	rest = time.Minute
)

// fulfilPins asks the writer, instead of a fetcher, for the keys whose pinned body is in the history. Their wants only
// set the refresh timer. If the body is gone when the writer looks, the audit finds the key.
func (r *Reconciler) fulfilPins(ctx context.Context, p *plan.Plan) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	for _, w := range p.Publish {
		asked := w.Cause == v1.Cause_CAUSE_NOW || w.Cause == v1.Cause_CAUSE_AUDIT
		switch {
		case w.GetSha256() == "" || w.GetCached() != nil || asked:
			continue
		case len(p.Pins) == pipeline.MaxFulfilled, r.deps.Clock.Now().UnixNano() < r.fetchPinsUntil.Load():
			return
		}
		_, err := r.deps.Client.Body(ctx, w.GetNamespace(), w.GetSha256())
		switch {
		case err == nil:
			w.Cached = &v1.Cached{Sha256: w.GetSha256()}
			p.Pins, p.Report = append(p.Pins, w.GetKey()+"="+w.GetSha256()), true
		case !errors.Is(err, pipeline.ErrNoBody):
			r.fetchPinsUntil.Store(r.deps.Clock.Now().Add(rest).UnixNano())
			r.deps.Log.Warn().Err(err).Msg("the history was not read, so pinned keys are fetched for a minute")
		}
	}
}
