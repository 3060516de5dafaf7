package pipeline

import "time"

// WithHeartbeat returns o with that heartbeat.
func (o ConsumeOptions) WithHeartbeat(d time.Duration) ConsumeOptions {
	o.heartbeat = d
	return o
}
