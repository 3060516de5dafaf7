package service

import "time"

// Varz is what a NATS server reports of itself, as far as it matters here: at /varz of
// its monitoring port, and to the system account.
type Varz struct {
	// MemoryLimit is its GOMEMLIMIT in bytes; 0: it has none.
	MemoryLimit int64 `json:"gomemlimit"`
	JetStream   struct {
		// Config is nil without JetStream.
		Config *DiskSync `json:"config"`
	} `json:"jetstream"`
}

// DiskSync is how soon a server writes to disk what it has acknowledged.
type DiskSync struct {
	// Always: before it acknowledges; else after Interval.
	Always   bool          `json:"sync_always"`
	Interval time.Duration `json:"sync_interval"`
}
