// Package kube has the shared code of services that talk to Kubernetes: the client configuration,
// the bridge from klog, and Events. It is separate from package process, because the fetcher does
// not use Kubernetes.
package kube
