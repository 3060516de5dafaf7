package throttle

import (
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Config limits a Throttle.
type Config struct {
	// Slots is the maximum number of concurrent GETs, each until its outcome is published.
	Slots int
	// PerHost is the maximum number of concurrent GETs to one host. Of two or more, one is reserved
	// for a second namespace.
	PerHost int
	// Share is the maximum fraction of the slots for one namespace while others wait, above 0 to 1.
	Share float64
}

// Defaults returns the default limits.
func Defaults() Config { return Config{Slots: 64, PerHost: 8, Share: 0.5} }

// TicketRequest asks for a slot.
type TicketRequest struct {
	// Host is the authority of the URL: host and port.
	Host string
	// Namespace of the key.
	Namespace string
	// Ticket is the one that a started key has. Nil means none.
	Ticket *Ticket
	// Backlog reports whether more messages wait at the broker.
	Backlog bool
	// Urgent reports whether a person requested the GET. A pause of the host delays it only if the
	// namespace has another GET there.
	Urgent bool
}

// Busy explains why a GET has to wait.
type Busy struct {
	WaitsFor v1.WaitsFor
	// Pause is the rest of the host's pause, or the time until a budget is refilled.
	Pause time.Duration
}
