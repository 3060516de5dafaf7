package throttle

import (
	"errors"
	"time"
)

// Config of throttle.
type Config struct {
	// Slots is the number of GETs at a time in all.
	Slots int
	// PerHost is the number of GETs at a time to one host.
	PerHost int
	// Share is the part of the slots, above 0 to 1, that one namespace may
	// hold while others want slots, too.
	Share float64
	// Patience is how long a caller waits for a slot of a host that is quick;
	// a tenth of it while no slot of the host comes free.
	Patience time.Duration
	// Pause is the shortest time after which to come back.
	Pause time.Duration
	// MaxPause is the longest, unless the host has asked for more.
	MaxPause time.Duration
}

// Validate checks the limits.
func (l Config) Validate() error {
	switch {
	case l.Slots < 1:
		return errors.New("number of slots must be at least 1")
	case l.PerHost < 1:
		return errors.New("number of slots per host must be at least 1")
	case l.Share <= 0 || l.Share > 1:
		return errors.New("share of a namespace must be above 0 and at most 1")
	case l.Patience < 0 || l.Pause <= 0 || l.MaxPause < l.Pause:
		return errors.New("pauses must be positive, the longest not below the shortest")
	}
	return nil
}

// perNamespace is the number of slots that a share comes to.
func (l Config) perNamespace() int { return max(1, int(float64(l.Slots)*l.Share)) }

// Cause says why a GET may not be made now, from a closed set.
type Cause string

// Causes of not being admitted.
const (
	// HostBusy: the host has no free slot.
	HostBusy Cause = "host_busy"
	// HostSlowed: the host has asked to be left alone for a while.
	HostSlowed Cause = "host_slowed"
	// NamespaceShare: the namespace holds its share of the slots.
	NamespaceShare Cause = "namespace_share"
)

// Busy tells that a GET may not be made now.
type Busy struct {
	// Cause says why.
	Cause Cause
	// Wait is after what time to come back.
	Wait time.Duration
}
