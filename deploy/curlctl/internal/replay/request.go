package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Pace is how fast to ask.
type Pace struct {
	// Over spreads the fetches evenly over so long; 0: now.
	Over time.Duration
	// Rate bounds how many are asked for in a second; 0: no bound. The fetchers
	// bound what each host is asked anyway.
	Rate float64
}

func (p Pace) limiter() *rate.Limiter {
	if p.Rate <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(p.Rate), 1)
}

// Request asks for the fetch of each item that is wanted, and gives it its verdict.
// Progress, if set, is called with how many are done.
func Request(ctx context.Context, client *operate.Client, items []*Item, pace Pace, progress func(int)) error {
	limiter := pace.limiter()
	n := Count(items)[Wanted]
	begun := time.Now()
	slots := make(map[*Item]time.Time, n)
	for _, item := range items {
		if pace.Over > 0 && item.Verdict == Wanted {
			slots[item] = begun.Add(pace.Over * time.Duration(len(slots)+1) / time.Duration(n))
		}
	}
	done := &tally{report: progress}
	return each(ctx, items, func(ctx context.Context, item *Item) error {
		if err := limiter.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		verdict, tried := Wanted, 0
		err := Retry(ctx, func(ctx context.Context) (err error) {
			verdict, err = publish(ctx, client, item, slots[item])
			tried++
			return err
		})
		if err != nil {
			return err
		}
		if verdict == Already && tried > 1 {
			verdict = Replayed // by the try whose answer was lost
		}
		item.Verdict = verdict
		done.add()
		return nil
	})
}

// publish asks by one due, or one timer if there is a time for it.
func publish(ctx context.Context, client *operate.Client, item *Item, at time.Time) (Verdict, error) {
	for range 3 {
		want, sequence, verdict, err := current(ctx, client, item)
		if err != nil || verdict != Wanted {
			return verdict, err
		}
		due := newDue(want, sequence, v1.Cause_CAUSE_REPLAY)
		due.ReplayOf, due.Earlier = item.ID, item.Traceparent
		timer, err := inherit(ctx, client, item.Key, due)
		if err != nil {
			return Wanted, err
		}
		verdict = Replayed
		if at.IsZero() {
			var duplicate bool
			duplicate, err = client.PublishDue(ctx, due, fmt.Sprintf("replay.%d.%d.%d", want.GetEpoch(), item.ID, sequence))
			if duplicate {
				verdict = Already
			}
		} else if !timer.at.IsZero() && timer.at.Before(at) {
			return Sooner, nil
		} else {
			err = client.PublishTimer(ctx, due, at)
		}
		if !errors.Is(err, pipeline.ErrSuperseded) { // by a want that came in between
			return verdict, err
		}
	}
	return Changed, nil
}

// newDue returns what asks for a fetch of a want.
func newDue(want *v1.Want, sequence uint64, cause v1.Cause) *v1.Due {
	want = proto.CloneOf(want)
	want.Status, want.Settled = "", nil
	return &v1.Due{Want: want, WantSequence: sequence, Cause: cause}
}

// pending is what the key's timer holds.
type pending struct {
	// at is when it fires; zero: there is none.
	at time.Time
	// cached is the body that the key holds, if that is known.
	cached *v1.Settled
}

// inherit takes over what the key's pending timer knows of its failures, so
// that a failure of the same kind is no news. What body the key holds is for
// the caller to hand on: without it, a good answer is always handed to the
// writer, which writes only what differs.
func inherit(ctx context.Context, client *operate.Client, key pipeline.Key, due *v1.Due) (pending, error) {
	timer, err := client.PendingTimer(ctx, key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrMalformed):
		return pending{}, nil
	case err != nil:
		return pending{}, err
	case timer.Due.GetWantSequence() != due.GetWantSequence():
		return pending{}, nil
	}
	due.Reported, due.StatusCode, due.FirstFailedAt = timer.Due.GetReported(), timer.Due.GetStatusCode(), timer.Due.GetFirstFailedAt()
	return pending{at: timer.At, cached: timer.Due.GetSettled()}, nil
}
