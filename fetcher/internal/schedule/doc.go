// Package schedule computes the time of the next fetch of a key: with back-off after a failure, and
// at regular intervals. The timers are message schedules in NATS, so they survive the process.
package schedule
