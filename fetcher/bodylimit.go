package fetcher

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/kv8s/curl-me-that/proto/process"
)

const (
	// envelope is the usual maximum size of a result without its body, in bytes. With a very long URL
	// or status annotation it is larger, see Engine.fit.
	envelope = 16 << 10
	// copies is the number of copies of a body in memory: as received and in a message.
	copies = 2
	// sharedBodies is the number of bodies that are kept for other fetches of the same URL.
	sharedBodies = 4
)

// limitBodies lowers the body limit to that of the broker. It fails if the bodies of all messages in
// flight do not fit into memory.
func (c *Config) limitBodies(rt *process.Runtime) error {
	maxPayload := rt.NATS.MaxPayload()
	body, err := bodyLimit(c.Get.MaxBody, maxPayload)
	if err != nil {
		return err
	}
	if err := checkMemory(c.Throttle.Slots, body, debug.SetMemoryLimit(-1)); err != nil {
		return err
	}
	rt.Log.Info().Int64("max_body", body).Int64("max_payload", maxPayload).Int("concurrency", c.Throttle.Slots).
		Msg("accepting bodies of up to max_body bytes")
	c.Get.MaxBody, c.Engine.Sharing.Bytes = body, sharedBodies*body
	return nil
}

// bodyLimit returns the maximum body size for the maximum message size of the broker.
func bodyLimit(maxBody, maxPayload int64) (int64, error) {
	if maxPayload <= envelope {
		return 0, fmt.Errorf("max_payload of the NATS server is %d bytes and leaves no room for a body, raise it above %d",
			maxPayload, envelope)
	}
	return min(maxBody, maxPayload-envelope), nil
}

// checkMemory fails if the bodies of all messages in flight exceed a memory limit.
func checkMemory(concurrency int, body, limit int64) error {
	need := float64(concurrency) * float64(body) * copies
	if need <= float64(limit) {
		return nil
	}
	const mebibyte = 1 << 20
	return fmt.Errorf("--concurrency %d times bodies of %d bytes, each held %d times, needs %.0f MiB and GOMEMLIMIT "+
		"is %.0f MiB: lower --concurrency or --max-body, or raise GOMEMLIMIT",
		concurrency, body, copies, math.Ceil(need/mebibyte), math.Floor(float64(limit)/mebibyte))
}
