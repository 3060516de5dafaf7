package schedule

import (
	"errors"
	"hash/fnv"
	"strconv"
	"time"
)

// Refresh spaces regular fetches.
type Refresh struct {
	// Min is the shortest interval. A shorter one that is asked for counts as
	// this one.
	Min time.Duration
	// Max bounds what Cache-Control may lengthen an interval to.
	Max time.Duration
	// Jitter is the part of the interval, from 0 to 0.25, by which fetches of a
	// URL stray from a strict beat.
	Jitter float64
}

// Validate checks the bounds, and names the flag of one that is out of range.
func (r Refresh) Validate() error {
	switch {
	case r.Min <= 0:
		return errors.New("--min-refresh must be positive")
	case r.Max < r.Min:
		return errors.New("--max-refresh must not be below --min-refresh")
	case r.Jitter < 0 || r.Jitter > 0.25:
		return errors.New("--refresh-jitter must be from 0 to 0.25")
	}
	return nil
}

// Next returns when a URL is fetched again that was fetched now.
//
// Time is divided into slots of one interval, shifted by a hash of the URL:
// objects that share URL and interval meet, so that one GET serves all, and
// different URLs spread over the interval. The first slot that is at least
// half an interval ahead is taken, thus a steady refresh comes once per
// interval. maxAge, for how long the answer stays fresh (RFC 9111 section
// 4.2), puts it off, up to Max; it never brings it forward.
func (r Refresh) Next(now time.Time, url string, interval, maxAge time.Duration) time.Time {
	interval = max(interval, r.Min)
	wait := interval / 2
	if fresh := min(maxAge, r.Max); fresh > interval {
		wait = fresh
	}
	slot := firstSlot(now.Add(wait), url, interval)
	if limit := now.Add(r.Max); wait > interval && r.at(slot, url, interval).After(limit) {
		slot--
	}
	return r.at(slot, url, interval)
}

// firstSlot returns the number of the first slot that does not begin before t.
func firstSlot(t time.Time, url string, interval time.Duration) int64 {
	since := t.UnixNano() - shift(url, interval)
	slot := since / int64(interval)
	if since > slot*int64(interval) {
		slot++
	}
	return slot
}

// at returns when a slot begins. Its jitter depends on URL and slot only, so
// that all objects that share them agree.
func (r Refresh) at(slot int64, url string, interval time.Duration) time.Time {
	begin := slot*int64(interval) + shift(url, interval)
	stray := float64(hash(url, strconv.FormatInt(slot, 36))%1024) / 1024
	return time.Unix(0, begin+int64(float64(interval)*r.Jitter*stray))
}

func shift(url string, interval time.Duration) int64 {
	return int64(hash(url, "") % uint64(interval))
}

func hash(url, salt string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(url))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(salt))
	// FNV leaves the high bits of short texts alike; mix them (splitmix64).
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
