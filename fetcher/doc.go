// Package fetcher is the only service that connects to the internet. It reads wants from NATS,
// fetches their URLs, and passes bodies and failures to the writer. It keeps no state and has no
// access to Kubernetes. Any number of replicas share the work.
package fetcher
