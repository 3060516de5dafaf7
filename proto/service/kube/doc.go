// Package kube is what the services that talk to Kubernetes share: the client
// configuration, the bridge from klog, and Events. It is apart from package
// service, because the fetcher has nothing to do with Kubernetes.
package kube
