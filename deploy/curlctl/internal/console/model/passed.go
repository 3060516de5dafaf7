package model

import (
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// SampleCount is how many samples are kept, of pollEvery each.
const SampleCount = 30

// Sample is what was polled at one time.
type Sample struct {
	// Requests and Results are the backlogs, what is in work included.
	Requests, Results uint64
}

// newSample returns it, up to where the fetchers have taken requests, and the last.
func newSample(o overview.Overview) (s Sample, handled, last uint64) {
	for _, c := range o.Consumers {
		n := c.Backlog + uint64(max(c.InFlight, 0))
		if c.Name == pipeline.FetcherConsumer {
			s.Requests, handled, last = n, c.Handled, c.Last
			if n == 0 {
				handled = last // behind the last request there may be timers
			}
		} else {
			s.Results = n
		}
	}
	return s, handled, last
}

// hour counts failures by minute, for the hour that ends with the last of them.
type hour struct {
	last   int64
	counts [minutes]int32
}

const minutes = 60 // of an hour

func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

func (h *hour) add(at time.Time) {
	minute := minuteOf(at)
	if minute > h.last {
		for old := max(h.last+1, minute-minutes+1); old <= minute; old++ {
			h.counts[old%minutes] = 0
		}
		h.last = minute
	}
	if minute > h.last-minutes {
		h.counts[minute%minutes]++
	}
}

// of returns the failures of the last hour by minute, the oldest first.
func (h *hour) of(now time.Time) (counts [minutes]int) {
	first := minuteOf(now) - minutes + 1
	for i := range counts {
		if minute := first + int64(i); minute > h.last-minutes && minute <= h.last {
			counts[i] = int(h.counts[minute%minutes])
		}
	}
	return counts
}

// before reports whether all of it is more than an hour ago.
func (h *hour) before(now time.Time) bool { return h.last <= minuteOf(now)-minutes }

// Failure that has passed.
type Failure struct {
	// Reason and Host as in the subject.
	Reason, Host string
	// Key that failed.
	Key pipeline.Key

	at time.Time
}

// Bounds of what is kept of what passes: so many in a second, and so many
// failures for those that look at a list of them.
const (
	passedEach   = 20
	passedMost   = 60
	failuresMost = 4096
)

// passed is what has passed lately.
type passed struct {
	second   int64
	taken    int
	entries  []traffic.Message
	numbers  uint64 // of all entries ever
	failures []Failure
	failed   uint64 // of all failures ever
}

// room reports whether another may be described in this second.
func (p *passed) room(now time.Time) bool {
	if p.second != now.Unix() {
		p.second, p.taken = now.Unix(), 0
	}
	p.taken++
	return p.taken <= passedEach
}

func (p *passed) add(entry traffic.Message) {
	p.numbers++
	if p.entries = append(p.entries, entry); len(p.entries) > 2*passedMost {
		p.entries = append([]traffic.Message(nil), p.entries[passedMost:]...)
	}
}

func (p *passed) fail(f Failure) {
	p.failed++
	if p.failures = append(p.failures, f); len(p.failures) > 2*failuresMost {
		p.failures = append([]Failure(nil), p.failures[failuresMost:]...)
	}
}

// since returns the failures after the first n ever; see last.
func (p *passed) since(n uint64) []Failure { return last(p.failures, p.failed, n) }

// last returns the last of all, those after the first n ever; at most so many as
// are stored. An n that is larger is of an earlier process, and counts as 0.
func last[T any](all []T, ever, n uint64) []T {
	if n > ever {
		n = 0
	}
	return all[len(all)-int(min(ever-n, uint64(len(all)))):]
}
