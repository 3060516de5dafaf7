package schedule

import (
	"errors"
	"hash/fnv"
	"strconv"
	"time"
)

// Refresh computes the times of regular fetches.
type Refresh struct {
	// Min is the minimum interval. Shorter ones are raised to it.
	Min time.Duration
	// Max is the longest interval that max-age can set.
	Max time.Duration
	// Jitter is the jitter as a fraction of the interval, from 0 to 0.25.
	Jitter float64
}

// Validate names the first flag that is out of range.
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

// Next returns the time of the next fetch of a URL that was fetched now.
//
// Time is divided into slots of one interval, with an offset from a hash of the URL. Objects with
// the same URL and interval are therefore fetched together and share one GET, and different URLs
// spread over the interval. Next chooses the first slot at least half an interval ahead, so a steady
// refresh comes once per interval. A longer maxAge (RFC 9111 section 4.2) delays it, up to Max.
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

// firstSlot returns the number of the first slot that starts at t or later.
func firstSlot(t time.Time, url string, interval time.Duration) int64 {
	since := t.UnixNano() - offset(url, interval)
	slot := since / int64(interval)
	if since > slot*int64(interval) {
		slot++
	}
	return slot
}

// at returns the start of a slot. Its jitter depends only on URL and slot, so that objects with the
// same URL are still fetched together.
func (r Refresh) at(slot int64, url string, interval time.Duration) time.Time {
	start := slot*int64(interval) + offset(url, interval)
	fraction := float64(hash(url, strconv.FormatInt(slot, 36))%1024) / 1024
	return time.Unix(0, start+int64(float64(interval)*r.Jitter*fraction))
}

func offset(url string, interval time.Duration) int64 {
	return int64(hash(url, "") % uint64(interval))
}

func hash(url, salt string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(url))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(salt))
	// The high bits of FNV hashes of short texts are similar, so mix them (splitmix64).
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
