package v1alpha1

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// Client is the API of the Watchers of all namespaces.
//
// +kubebuilder:object:generate=false
type Client struct {
	rest   rest.Interface
	params runtime.ParameterCodec
}

// NewClient returns a client that sends its requests with web (nil: a new one).
func NewClient(shared *rest.Config, web *http.Client) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the resource: %w", err)
	}
	config := rest.CopyConfig(shared)
	group := GroupVersion()
	config.GroupVersion, config.APIPath = &group, "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if web == nil {
		var err error
		if web, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("use the cluster: %w", err)
		}
	}
	client, err := rest.RESTClientForConfigAndClient(config, web)
	return &Client{rest: client, params: runtime.NewParameterCodec(scheme)}, err
}

// Namespaced is the API of the Watchers of one namespace.
type Namespaced = gentype.ClientWithList[*Watcher, *WatcherList]

// In returns the API of a namespace ("" means all).
func (c *Client) In(namespace string) *Namespaced {
	return gentype.NewClientWithList(Resource().Resource, c.rest, c.params, namespace,
		func() *Watcher { return &Watcher{} }, func() *WatcherList { return &WatcherList{} })
}
