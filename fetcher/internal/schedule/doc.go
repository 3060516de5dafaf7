// Package schedule computes when a key is looked at again: after a failure,
// and at regular intervals. It only computes. The times are kept by message
// schedules, so that no timer lives in a process.
package schedule
