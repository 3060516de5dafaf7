package controlplane

import "errors"

var (
	// ErrPortTaken means that the port of the API server is not free.
	ErrPortTaken = errors.New("port taken")
	// ErrExited means that etcd or kube-apiserver ended without being asked to.
	ErrExited = errors.New("exited")
	// ErrRunning means that an API server cannot be started beside a running one.
	ErrRunning = errors.New("already running")
	// ErrStopped means that the control plane is over.
	ErrStopped = errors.New("control plane stopped")
)
