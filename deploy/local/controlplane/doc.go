// Package controlplane runs a real etcd and kube-apiserver on the loopback
// interface, for trying things out and for tests: nothing about the API is faked.
//
// What a cluster has beside an API server is absent. No controller manager means
// that a deleted namespace stays in Terminating, that nothing collects the objects
// of a deleted owner, that a new namespace has no default service account, and that
// the aggregated cluster roles (admin, edit, view) grant nothing.
//
// The data survives a restart when the folder is named, and dies with the control
// plane when it is not. Nothing is synced to disk, so a crash of the machine, not
// of a process, may lose it.
package controlplane
