package operate

import (
	"context"
	"iter"
	"slices"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// A stream is read backwards in windows of windowFirst to windowMax sequences. The next window is larger
// after fewer than windowFew messages, and smaller after more than windowMany.
const (
	windowFirst = 64
	windowMax   = 1 << 16
	windowFew   = 128
	windowMany  = 512
)

// backwards reads messages of a stream, newest first, and buffers a few hundred at a time. It stops at the
// first error.
func (c *Client) backwards(ctx context.Context, r pipeline.Range) iter.Seq2[pipeline.Message, error] {
	return func(yield func(pipeline.Message, error) bool) {
		stream, err := c.stream(ctx, r.Stream)
		if err != nil {
			yield(pipeline.Message{}, err)
			return
		}
		state := stream.CachedInfo().State
		top, bound := state.LastSeq+1, max(state.FirstSeq, 1)
		if r.Below > 0 {
			top = min(top, r.Below)
		}
		for span := uint64(windowFirst); top > bound; {
			r.From, r.Below = bound, top
			if top-bound > span {
				r.From = top - span
			}
			var window []pipeline.Message
			for m, err := range c.Scan(ctx, r) {
				if err != nil {
					yield(m, err)
					return
				}
				window = append(window, m)
			}
			for _, m := range slices.Backward(window) {
				if !yield(m, nil) {
					return
				}
			}
			switch {
			case len(window) > windowMany:
				span = max(span/4, windowFirst)
			case len(window) < windowFew:
				span = min(span*4, windowMax)
			}
			top = r.From
		}
	}
}
