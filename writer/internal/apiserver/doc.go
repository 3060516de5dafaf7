// Package apiserver makes the requests of the writer to the Kubernetes API server and classifies
// the responses.
package apiserver
