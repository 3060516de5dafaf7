// Package natstest runs real NATS servers with JetStream for tests: inside the
// test's process, ready in milliseconds, one for each spec.
package natstest
