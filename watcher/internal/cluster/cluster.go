// Package cluster connects a program to the API server: what it watches goes over
// connections of its own, which can be closed when they are silent.
package cluster

import (
	"net"
	"time"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// Clients are what the programs have in common. Further clients are made of the two
// configurations.
type Clients struct {
	// Watching is for lists and watches, Writing for all else.
	Watching, Writing *rest.Config
	// Metadata watches objects of which only the metadata is sent.
	Metadata metadata.Interface
	// Events and Leases are written.
	Events corev1client.EventsGetter
	Leases coordinationv1.CoordinationV1Interface
	// Redial lets the next request of a watch go over a new connection.
	Redial func()
	// Close ends all connections.
	Close func()
}

// Connect makes the clients. It makes no request.
func Connect(cluster *rest.Config) (*Clients, error) {
	watching, closeWatching := closable(cluster)
	writing, closeWriting := closable(cluster)
	c := &Clients{
		Watching: watching, Writing: writing, Redial: closeWatching,
		Close: func() { closeWatching(); closeWriting() },
	}
	var err error
	if c.Metadata, err = metadata.NewForConfig(watching); err != nil {
		return nil, err
	}
	if c.Events, err = corev1client.NewForConfig(writing); err != nil {
		return nil, err
	}
	c.Leases, err = coordinationv1.NewForConfig(writing)
	return c, err
}

// closable returns a copy of a configuration whose connections can be closed. An
// API server that is away is noticed in seconds, not after the stock half minute:
// when it does not accept connections, and when one is dead.
func closable(cluster *rest.Config) (own *rest.Config, closeAll func()) {
	dialer := connrotation.NewDialer((&net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3},
	}).DialContext)
	own = rest.CopyConfig(cluster)
	own.Dial = dialer.DialContext
	return own, dialer.CloseAll
}
