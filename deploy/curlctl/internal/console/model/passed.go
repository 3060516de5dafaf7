package model

import (
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/passing"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// SampleCount is how many samples are kept, of pollEvery each.
const SampleCount = 30

// Sample is what was polled at one time.
type Sample struct {
	// Requests and Results are the backlogs, what is in work included.
	Requests, Results uint64
}

func newSample(o overview.Overview) Sample {
	s := Sample{}
	for _, c := range o.Consumers {
		n := c.Backlog + uint64(max(c.InFlight, 0))
		if c.Name == pipeline.FetcherConsumer {
			s.Requests = n
		} else {
			s.Results = n
		}
	}
	return s
}

// minute of a namespace.
type minute struct {
	namespace string
	at        int64
}

// minutes counts failures of the last hour.
type minutes map[minute]int

func (m minutes) add(namespace string, at time.Time) { m[minute{namespace, at.Unix() / 60}]++ }

// of returns the failures of the last hour by minute, the oldest first; of all
// namespaces where it is empty.
func (m minutes) of(namespace string, now time.Time) (counts [60]int) {
	first := now.Unix()/60 - 59
	for k, n := range m {
		switch i := k.at - first; {
		case i < 0:
			delete(m, k)
		case i < 60 && (namespace == "" || k.namespace == namespace):
			counts[i] += n
		}
	}
	return counts
}

// Failure that has passed.
type Failure struct {
	// Reason and Host as in the subject.
	Reason, Host string
	// Key that failed.
	Key pipeline.Key
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
	count    uint64
	second   int64
	taken    int
	entries  []passing.Passing
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

func (p *passed) add(entry passing.Passing) {
	p.numbers++
	if p.entries = append(p.entries, entry); len(p.entries) > 2*passedMost {
		p.entries = append([]passing.Passing(nil), p.entries[passedMost:]...)
	}
}

func (p *passed) fail(f Failure) {
	p.failed++
	if p.failures = append(p.failures, f); len(p.failures) > 2*failuresMost {
		p.failures = append([]Failure(nil), p.failures[failuresMost:]...)
	}
}

// since returns the last of all, those after the first n ever; at most so many as
// are stored. An n that is larger is of an earlier process, and counts as 0.
func since[T any](all []T, ever, n uint64) []T {
	if n > ever {
		n = 0
	}
	return all[len(all)-int(min(ever-n, uint64(len(all)))):]
}
