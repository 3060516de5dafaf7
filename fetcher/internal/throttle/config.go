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
}

// Defaults returns the usual bounds.
func Defaults() Config { return Config{Slots: 64, PerHost: 8, Share: 0.5} }

// Validate checks the bounds, and names the flag of one that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Slots < 1 || c.Slots > 4096:
		return errors.New("--concurrency must be from 1 to 4096")
	case c.PerHost < 1:
		return errors.New("--per-host must be at least 1")
	case c.Share <= 0 || c.Share > 1:
		return errors.New("--namespace-share must be above 0 and at most 1")
	}
	return nil
}

// Request asks for a slot.
type Request struct {
	// Host is the authority of the URL: host and port.
	Host string
	// Namespace that the slot counts for.
	Namespace string
	// Slot of a started key. Nil means none.
	Slot *Slot
	// Backlog reports whether further requests wait at the broker.
	Backlog bool
	// Urgent reports whether a person asks for the GET now. A pause of the host
	// does not delay it.
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
