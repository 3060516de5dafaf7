package throttle

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Config bounds a Throttle.
type Config struct {
	// Slots is the number of GETs at a time in all.
	Slots int
	// PerHost is the number of GETs at a time to one host. One of them is kept
	// for a second namespace, if there are two or more.
	PerHost int
	// Share is the part of the slots, above 0 to 1, that one namespace may
	// hold while others want slots, too.
	Share float64
	// MaxWait is how long a request waits in memory for a slot that will
	// probably come free within it. A request without a reservation waits for an
	// eighth of it.
	MaxWait time.Duration
	// MinPark is the shortest time after which to come back.
	MinPark time.Duration
	// MaxPause bounds the pause of a host for the namespace whose request it
	// has refused, and MaxPauseOthers that for all other namespaces. A pause
	// begins with a second and doubles with each further refusal.
	MaxPause, MaxPauseOthers time.Duration
}

// Defaults returns the usual bounds.
func Defaults() Config {
	return Config{
		Slots:          64,
		PerHost:        8,
		Share:          0.5,
		MaxWait:        2 * time.Second,
		MinPark:        300 * time.Millisecond,
		MaxPause:       time.Minute,
		MaxPauseOthers: 5 * time.Second,
	}
}

// Validate checks the bounds, and names the flag of one that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Slots < 1 || c.Slots > 4096:
		return errors.New("--concurrency must be from 1 to 4096")
	case c.PerHost < 1:
		return errors.New("--per-host must be at least 1")
	case c.Share <= 0 || c.Share > 1:
		return errors.New("--namespace-share must be above 0 and at most 1")
	case c.MaxWait < 0 || c.MinPark <= 0:
		return errors.New("wait in memory must not be negative, shortest time until a return must be positive")
	case c.MaxPauseOthers <= 0 || c.MaxPause < c.MaxPauseOthers:
		return errors.New("pauses must be positive, that of others not above that of the namespace itself")
	}
	return nil
}

// perNamespace is the number of slots that a share comes to.
func (c Config) perNamespace() int { return max(1, int(float64(c.Slots)*c.Share)) }

// waiters is the number of requests that may wait in memory. Each holds one of
// as many workers as there are slots.
func (c Config) waiters() int64 { return int64(max(1, c.Slots/4)) }

// Request asks for a slot.
type Request struct {
	// Host is the authority of the URL: host and port.
	Host string
	// Waiter is what waits if there is no slot; nil: it cannot be advanced.
	Waiter *Waiter
	// Namespace that the slot counts for.
	Namespace string
	// Backlog reports whether further requests wait at the broker.
	Backlog bool
	// Reserved reports whether the request comes back at the time it was given.
	Reserved bool
	// Urgent reports whether a person asks for the GET now: no pause of the
	// host holds it up.
	Urgent bool
}

// Waiter is a want that waits for a slot of its host.
type Waiter struct {
	Key pipeline.Key
	// Want is its sequence in the stream of requests.
	Want uint64
	// Timer is the sequence of the timer by which it was put off, for whoever sets
	// that; 0: there is none yet.
	Timer atomic.Uint64
}

// Cause is why a GET may not be made now, from a closed set.
type Cause string

// Causes.
const (
	HostBusy       Cause = "host_busy"       // the host has no free slot for the namespace
	HostSlowed     Cause = "host_slowed"     // the host has asked for a pause
	NamespaceShare Cause = "namespace_share" // the namespace holds its share of the slots
)

// Busy is why a GET may not be made now, and when to come back.
type Busy struct {
	// Cause of the refusal.
	Cause Cause
	// Wait until the reserved time.
	Wait time.Duration
}
