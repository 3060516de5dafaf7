// Package writer is the service that applies results to ConfigMaps. Only this service may change
// them. It connects to the API server and to NATS, and never leaves the cluster.
package writer
