package watcher

import (
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/watcher/internal/dial"
)

// clients of the cluster. ConfigMaps are watched over connections of their own.
type clients struct {
	configMaps metadata.Interface
	events     corev1client.EventsGetter
	leases     coordinationv1.CoordinationV1Interface
	// redial lets the next request for ConfigMaps go over a new connection.
	redial func()
	// close ends all connections.
	close func()
}

func connect(cluster *rest.Config) (*clients, error) {
	watching, closeWatching := dial.Closable(cluster)
	writing, closeWriting := dial.Closable(cluster)
	c := &clients{redial: closeWatching, close: func() { closeWatching(); closeWriting() }}
	var err error
	if c.configMaps, err = metadata.NewForConfig(watching); err != nil {
		return nil, err
	}
	if c.events, err = corev1client.NewForConfig(writing); err != nil {
		return nil, err
	}
	c.leases, err = coordinationv1.NewForConfig(writing)
	return c, err
}
