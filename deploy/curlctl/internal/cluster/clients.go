package cluster

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Clients of Kubernetes, and their configuration.
type Clients struct {
	Config     *rest.Config
	ConfigMaps metadata.Getter
	Watchers   *watchv1.Client
	Core       corev1client.CoreV1Interface
}

// general is the advice of client-go if a login program is missing, before that of the kubeconfig.
var general = regexp.MustCompile(`(?s)\n\nIt looks like you.*?#client-go-credential-plugins`)

// PlainError is an error of a request to Kubernetes, in one paragraph.
type PlainError struct{ Err error }

// Error returns the text without general advice.
func (p PlainError) Error() string {
	return strings.ReplaceAll(general.ReplaceAllString(p.Err.Error(), ""), "\n\n", ". ")
}

// Unwrap returns the whole error.
func (p PlainError) Unwrap() error { return p.Err }

// Open returns clients, and a function that closes their connections. A timeout of 0 means no limit.
func Open(o kube.Options, timeout time.Duration) (c Clients, done func(), err error) {
	config, err := o.UserConfig()
	if err != nil {
		return c, nil, err
	}
	config.Timeout = timeout
	config.QPS = -1 // no limit
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	core, noCore := corev1client.NewForConfigAndClient(config, web)
	meta, noMeta := metadata.NewForConfigAndClient(config, web)
	watchers, noWatchers := watchv1.NewClient(config, web)
	if err := cmp.Or(noCore, noMeta, noWatchers); err != nil {
		return c, nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	c = Clients{
		Config:     config,
		ConfigMaps: meta.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")),
		Watchers:   watchers,
		Core:       core,
	}
	return c, func() { utilnet.CloseIdleConnectionsFor(web.Transport) }, nil
}
