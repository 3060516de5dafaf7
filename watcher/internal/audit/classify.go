package audit

import (
	"math"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// verdict is what the audit thinks of a key.
type verdict int

const (
	// inOrder: nothing is lost.
	inOrder verdict = iota
	// scheduled: a timer leads to another attempt.
	scheduled
	// inFlight: a fetcher or the writer has yet to handle a message of the key.
	inFlight
	// landing: the writer may be about to write the body of a refresh. A key has this verdict only once in a row. With a
	// short interval there is always such a refresh, so a lost body would never be noticed.
	landing
	// bodyLost: the key lacks its newest body, and no attempt will bring it.
	bodyLost
	// timerLost: the key has its body, but will not be refreshed.
	timerLost
)

// observation is what the object and earlier steps show of a key.
type observation struct {
	evidence
	// rejected means that the writer refused the content, so that only the next content can help.
	rejected bool
	// available is the digest of a body that waits for the approval of the owner.
	available string
	// ahead means that the fence of the object is newer than the whole stream, so that no result would land: the stream
	// was restored from a backup.
	ahead bool
	// suspected means that an earlier step suspected the key, and wasLanding that the last verdict was landing.
	suspected, wasLanding bool
}

// pending is the work that the messages of a key announce.
type pending struct {
	// timer fires at a time. It is lost if it is missing or overdue, or if the clock was set back since,
	// so that it would fire much too late.
	timer     *v1.Due
	at        time.Time
	timerLost bool
	// fired is the last due message since the want. inFlight means that no fetcher has handled it yet.
	fired    *v1.Due
	inFlight bool
	// recent means that the watch may not show the effect of a message yet.
	recent bool
}

// newest returns the digest of the newest body (empty: unknown).
func (p pending) newest() string { return p.timer.GetCached().GetSha256() }

// leadsToAttempt reports whether the timer leads to another attempt. After a good response, a timer does not
// prove that the body landed.
func (p pending) leadsToAttempt(o observation) bool {
	switch p.timer.GetCause() {
	case v1.Cause_CAUSE_RETRY, v1.Cause_CAUSE_PARKED, v1.Cause_CAUSE_REPLAY:
		return true
	default:
		return o.rejected || o.failure != "" && p.timer.GetReported() != failure.Unspecified
	}
}

// interval is the time in which the audit checks each key, 2 min by default. All other durations are fractions or
// multiples of it.
type interval time.Duration

// grace is how long the watch may take to show the effect of a new want or timer.
func (i interval) grace() time.Duration { return time.Duration(i) / 4 }

// half is the time after which a lost key is requested again, and after which work in flight is checked.
func (i interval) half() time.Duration { return time.Duration(i) / 2 }

// maxTimerDelay is the maximum delay of a timer. If the server cannot publish a timer when it fires,
// the timer stays in the stream and never fires again.
func (i interval) maxTimerDelay() time.Duration { return time.Duration(i) / 2 }

// maxInFlight is how long a delivered message counts as in flight. All its deliveries take less.
func (i interval) maxInFlight() time.Duration { return time.Duration(i) * 5 / 2 }

// maxPause is the maximum time between two checks of a suspect.
func (i interval) maxPause() time.Duration { return 5 * time.Duration(i) }

// classify returns the verdict about a key.
func classify(o observation, w wantindex.Want, p pending) verdict {
	landed := p.newest() != "" && (p.newest() == o.sha256 || p.newest() == o.available)
	// Every attempt fails until the want is signed again.
	unsigned := p.timer.GetDetail() == failure.DeniedCredentials
	switch {
	case !o.held && w.ByNow && landed && !p.timerLost: // curl-now was set, and the fetch gave the same body
		return inOrder
	case !o.held: // see below
	case unsigned, o.ahead, p.timerLost && !p.inFlight && !p.recent:
		return timerLost
	case landed, p.newest() == "" && !o.suspected:
		return inOrder
	}
	switch {
	case unsigned:
		return bodyLost
	case !p.inFlight && !p.timerLost && p.leadsToAttempt(o):
		return scheduled
	case p.inFlight && p.fired.GetCause() != v1.Cause_CAUSE_REFRESH:
		return inFlight
	case !o.wasLanding && (p.inFlight || p.recent):
		return landing
	}
	return bodyLost
}

// excuse returns the verdict about a lost key once more is known: queued means that the writer has yet to handle a
// result of the key, and repaired that the plan of the object repairs the key anyway, at growing intervals.
func (v verdict) excuse(queued, repaired bool) verdict {
	switch {
	case v == timerLost && queued:
		return inOrder
	case v == bodyLost && (queued || repaired):
		return inFlight
	}
	return v
}

// pause returns the time until the next check of a suspect that was requested so often.
func (i interval) pause(v verdict, p pending, requests uint8, now time.Time) time.Duration {
	switch v {
	case scheduled:
		return min(p.at.Sub(now)+i.maxTimerDelay(), i.maxPause())
	case inFlight:
		return i.half()
	case landing:
		return i.grace()
	default:
		return min(time.Duration(i)<<requests, i.maxPause())
	}
}

// maxSkew is the maximum difference between clocks.
const maxSkew = time.Minute

// age returns the time since a time stamp of the broker. A future time stamp counts as very old: the
// clock was set back since.
func age(now, at time.Time) time.Duration {
	if age := now.Sub(at); age >= -maxSkew {
		return age
	}
	return math.MaxInt64
}

// handled reports whether a message was acknowledged, or delivered more than maxInFlight ago.
func handled(p pipeline.Progress, now time.Time, seq uint64, at time.Time, maxInFlight time.Duration) bool {
	return seq <= p.Acknowledged || seq <= p.Delivered && age(now, at) > maxInFlight
}

// pendingOf returns the pending work of a key, from the latest messages of its timer and due.
func (i interval) pendingOf(
	key pipeline.Key, w wantindex.Want, latest map[string]pipeline.Message, progress pipeline.Progress, now time.Time,
) pending {
	recent := func(at time.Time) bool { return age(now, at) < i.grace() }
	p := pending{timerLost: true, recent: recent(w.At)}
	if m, ok := latest[key.DueSubject()]; ok && m.Sequence > w.Fence.Seq {
		p.fired, _ = pipeline.DecodeDue(key, m.Data) // an unreadable message counts too
		p.inFlight = !handled(progress, now, m.Sequence, m.Time, i.maxInFlight())
		p.recent = p.recent || recent(m.Time)
	}
	m := latest[key.TimerSubject()]
	at, err := pipeline.FiresAt(m)
	if due, unreadable := pipeline.DecodeDue(key, m.Data); err == nil && unreadable == nil {
		p.timer, p.at = due, at
		p.timerLost = now.Sub(at) > i.maxTimerDelay() || m.Time.Sub(now) > maxSkew
		p.recent = p.recent || recent(m.Time)
	}
	return p
}
