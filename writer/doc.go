// Package writer is the service that applies results to ConfigMaps. It is the
// only part of curl-me-that that may change them, and it never leaves the
// cluster: it talks to the API server and to NATS.
package writer
