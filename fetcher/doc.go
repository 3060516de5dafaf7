// Package fetcher is the service that meets the internet: it reads from NATS
// what ConfigMaps ask for, curls it, and hands bodies and failures to the
// writer. It keeps no state and has no access to Kubernetes; any number of
// replicas share the work.
package fetcher
