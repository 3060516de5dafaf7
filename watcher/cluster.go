package watcher

import (
	"net"
	"time"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// clients of the cluster. ConfigMaps are watched over connections of their own.
type clients struct {
	configMaps metadata.Interface
	events     eventsv1.EventsV1Interface
	leases     coordinationv1.CoordinationV1Interface
	// redial lets the next request for ConfigMaps go over a new connection.
	redial func()
	// close ends all connections.
	close func()
}

func connect(cluster *rest.Config) (*clients, error) {
	watching, closeWatching := dialing(cluster)
	writing, closeWriting := dialing(cluster)
	c := &clients{redial: closeWatching, close: func() { closeWatching(); closeWriting() }}
	var err error
	if c.configMaps, err = metadata.NewForConfig(watching); err != nil {
		return nil, err
	}
	if c.events, err = eventsv1.NewForConfig(writing); err != nil {
		return nil, err
	}
	c.leases, err = coordinationv1.NewForConfig(writing)
	return c, err
}

// dialing returns a copy of a configuration whose connections can be closed. An
// API server that is unavailable is noticed in seconds, not after the stock half minute:
// when it does not accept connections, and when it no longer answers on one.
func dialing(cluster *rest.Config) (*rest.Config, func()) {
	dialer := connrotation.NewDialer((&net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3},
	}).DialContext)
	own := rest.CopyConfig(cluster)
	own.Dial = dialer.DialContext
	return own, dialer.CloseAll
}
