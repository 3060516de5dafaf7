package pipeline

import "time"

// WithHeartbeat returns o with a heartbeat other than the default.
func (o ConsumeOptions) WithHeartbeat(d time.Duration) ConsumeOptions {
	o.heartbeat = d
	return o
}
