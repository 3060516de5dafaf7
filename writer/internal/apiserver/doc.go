// Package apiserver makes the requests of the writer to the Kubernetes API server
// and classifies what comes back.
package apiserver
