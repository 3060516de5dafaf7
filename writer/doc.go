// Package writer is the service that applies results to ConfigMaps. No other service changes fetched keys. It
// connects to the API server and to NATS, and to nothing outside the cluster.
package writer
