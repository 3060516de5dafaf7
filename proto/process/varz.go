package process

import "time"

// Varz is the part that we need of a NATS server's report, from /varz of its monitoring port or from
// the system account.
type Varz struct {
	JetStream struct {
		// Config is nil without JetStream.
		Config *DiskSync `json:"config"`
	} `json:"jetstream"`
}

// DiskSync is the delay between acknowledging a message and syncing it to disk.
type DiskSync struct {
	// Always means before the acknowledgement, otherwise after Interval.
	Always   bool          `json:"sync_always"`
	Interval time.Duration `json:"sync_interval"`
}
