// Package process is the runtime of every process of curl-me-that: a command with flags and
// environment variables, logs, a connection to NATS, health and metrics over HTTP, and a run loop
// that drains.
package process
