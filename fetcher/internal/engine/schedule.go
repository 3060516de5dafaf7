package engine

import (
	"hash/fnv"
	"strconv"
	"time"
)

// Schedule decides when a key is fetched again.
type Schedule struct {
	// MaxAttempts is the maximum number of attempts in a row before a key waits for its next refresh or recheck.
	MaxAttempts uint32
	// Retry determines the pauses between attempts.
	Retry Backoff
	// MaxRetryAfter is the maximum pause for Retry-After.
	MaxRetryAfter time.Duration
	// Refresh determines the times of regular fetches.
	Refresh Refresh
	// Recheck is the pause after the last failed attempt of a key without refresh.
	Recheck time.Duration
}

// jitter is the jitter of a pause as a fraction, so that keys that failed together are not retried together.
const jitter = 0.2

// Backoff computes the pauses between failed attempts.
type Backoff struct {
	// Base is the pause after the first failure. Each further failure doubles it.
	Base time.Duration
	// Max is the maximum pause, before jitter.
	Max time.Duration
}

// Delay returns the pause after a number of failed attempts, with jitter. It is never shorter than
// retryAfter (RFC 9110 section 10.2.3). random is in [0, 1).
func (b Backoff) Delay(attempts uint32, retryAfter time.Duration, random float64) time.Duration {
	delay := b.Base
	for range min(max(attempts, 1)-1, 64) {
		delay = min(2*delay, b.Max)
	}
	if retryAfter > delay {
		return retryAfter + time.Duration(float64(delay)*jitter*random)
	}
	return max(retryAfter, jittered(delay, random))
}

// jittered returns d ±20 %. random is in [0, 1).
func jittered(d time.Duration, random float64) time.Duration {
	return d + time.Duration(float64(d)*jitter*(2*random-1))
}

// Refresh computes the times of regular fetches.
//
// Time is divided into slots of one interval, with an offset from a hash of the URL. Objects with
// the same URL and interval are therefore fetched together and share one GET, and different URLs
// spread over the interval. A slot starts with a jitter that depends only on URL and slot.
type Refresh struct {
	// Min is the minimum interval. Shorter ones are raised to it.
	Min time.Duration
	// Jitter is the jitter as a fraction of the interval, from 0 to 0.25.
	Jitter float64
}

// Next returns the next slot after now, at most the interval and its jitter ahead.
func (r Refresh) Next(now time.Time, url string, interval time.Duration) time.Time {
	interval = max(interval, r.Min)
	return r.at(r.next(now, url, interval), url, interval)
}

// After returns the time of the next fetch of a URL that was fetched now: the next slot, or half an
// interval later if that is too soon.
func (r Refresh) After(now time.Time, url string, interval time.Duration) time.Time {
	interval = max(interval, r.Min)
	half := r.next(now, url, interval)
	// A fetch half an interval after a slot may end late and still leave the next slot.
	if r.at(half, url, interval).Sub(now) < interval*3/8 {
		half++
	}
	return r.at(half, url, interval)
}

// next returns the number of the next slot after now, in half intervals.
func (r Refresh) next(now time.Time, url string, interval time.Duration) int64 {
	since := now.UnixNano() - offset(url, interval)
	slot := since / int64(interval)
	if r.at(2*slot, url, interval).After(now) {
		return 2 * slot
	}
	return 2 * (slot + 1)
}

// at returns the time of a slot, whose number is in half intervals.
func (r Refresh) at(half int64, url string, interval time.Duration) time.Time {
	start := half/2*int64(interval) + half%2*int64(interval/2) + offset(url, interval)
	fraction := float64(hash(url, strconv.FormatInt(half, 36))%1024) / 1024
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
