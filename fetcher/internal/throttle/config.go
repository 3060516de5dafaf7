package throttle

import (
	"errors"
	"time"
)

// Config bounds a Throttle.
type Config struct {
	// Slots is the maximum number of GETs at a time.
	Slots int
	// PerHost is the maximum number of GETs at a time to one host. One of them is
	// kept for a second namespace, if there are two or more.
	PerHost int
	// Share is the part of the slots, above 0 to 1, that one namespace may
	// hold while others want slots, too.
	Share float64
	// MaxWait is how long a request may wait in memory for a slot of a quick host.
	MaxWait time.Duration
	// MaxQueued bounds the memory of the queues in bytes. One namespace may use
	// half of the memory that the others leave free.
	MaxQueued int64
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
		MaxWait:        25 * time.Millisecond,
		MaxQueued:      32 << 20,
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
	case c.MaxWait < 0 || c.MaxQueued < 0:
		return errors.New("wait in memory and size of the queues must not be negative")
	case c.MaxPauseOthers <= 0 || c.MaxPause < c.MaxPauseOthers:
		return errors.New("pauses must be positive, that of others not above that of the namespace itself")
	}
	return nil
}

// perNamespace is the number of slots that a share comes to.
func (c Config) perNamespace() int { return max(1, int(float64(c.Slots)*c.Share)) }

// Request asks for a slot.
type Request struct {
	// Host is the authority of the URL: host and port.
	Host string
	// Namespace that the slot counts for.
	Namespace string
	// Slot that a started key has already; nil: none.
	Slot *Slot
	// Backlog reports whether further requests wait at the broker.
	Backlog bool
	// Urgent reports whether a person asks for the GET now: no pause of the
	// host holds it up.
	Urgent bool
}

// Cause is why a GET may not be made now, from a closed set.
type Cause string

// Causes.
const (
	HostBusy       Cause = "host_busy"       // the host has no free slot for the namespace
	HostSlowed     Cause = "host_slowed"     // the host has asked for a pause
	NamespaceShare Cause = "namespace_share" // the namespace holds its share of the slots
	SlotsBusy      Cause = "slots_busy"      // all slots of the fetcher are taken
)

// Busy is why a GET may not be made now.
type Busy struct {
	// Cause of the refusal.
	Cause Cause
	// Pause is how long the host still rests, if that is the cause.
	Pause time.Duration
}
