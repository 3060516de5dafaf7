package informer

import (
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/kube"
)

// Clients connect a program to the API server. Watches have their own connections, which can be closed when a watch is
// silent. The two configurations are for further clients.
type Clients struct {
	// Watching is for lists and watches, Writing for other requests.
	Watching, Writing *rest.Config
	// Metadata watches objects without their content.
	Metadata metadata.Interface
	Events   corev1client.EventsGetter
	Leases   coordinationv1.CoordinationV1Interface
	// Redial closes the connections of watches, so that the next request opens a new one.
	Redial func()
	Close  func()
}

// NewClients creates the clients without sending a request.
func NewClients(cluster *rest.Config) (*Clients, error) {
	watching, closeWatching := kube.Closable(cluster)
	writing, closeWriting := kube.Closable(cluster)
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
