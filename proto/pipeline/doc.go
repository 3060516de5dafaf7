// Package pipeline is the protocol on the wire: the streams and consumers of NATS JetStream, their
// subjects, and how messages are published, read and acknowledged. The messages are in package
// curlmethat/v1.
//
// It needs message schedules (ADR-51) and per-message expiry (ADR-43) of NATS: see MinServer.
package pipeline
