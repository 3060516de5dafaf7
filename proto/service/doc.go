// Package service is what every process of curl-me-that has: a command with
// flags and their environment twins, logs, a connection to NATS, health and
// metrics over HTTP, and a run loop that drains.
package service
