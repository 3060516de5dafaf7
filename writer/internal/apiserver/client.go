// Package apiserver makes the requests of the writer to the Kubernetes API server and classifies
// the responses.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/kube"
)

const (
	// CallTimeout limits one request, and probeTimeout one probe.
	CallTimeout  = 10 * time.Second
	probeTimeout = 3 * time.Second
)

// Client makes the requests of the writer. Requests for metadata return less than a kilobyte
// instead of the object.
type Client struct {
	objects  corev1client.CoreV1Interface
	closeAll func()
}

// NewClient returns a client for the cluster of a configuration.
func NewClient(config *rest.Config) (*Client, error) {
	config, closeAll := kube.Closable(config)
	c := &Client{closeAll: closeAll}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return retryAfterErrors{next: next} })
	// Only whole objects are large enough to be compressed, which would take three quarters of our CPU time for them.
	config.DisableCompression = true
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	if c.objects, err = corev1client.NewForConfigAndClient(config, shared); err != nil {
		return nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	return c, nil
}

// Events returns the client for Events.
func (c *Client) Events() corev1client.EventsGetter { return c.objects }

// Close closes all connections.
func (c *Client) Close() { c.closeAll() }

// Probe checks whether the API server and its store are ready. A refusal counts as ready. Without a
// response it closes all connections: they may be dead after a network outage, and HTTP/2 would
// keep using them for most of a minute.
func (c *Client) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := c.objects.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	if class := Classify(err); class != Unavailable && class != Failed {
		return nil
	}
	if _, answered := errors.AsType[*apierrors.StatusError](err); !answered {
		c.closeAll()
	}
	return fmt.Errorf("probe API server: %w", err)
}

// Patch sends a strategic merge patch and returns the resulting object, or only its metadata. A JSON merge patch (RFC
// 7386) costs the API server a tenth more.
func (c *Client) Patch(
	ctx context.Context, ref types.NamespacedName, body []byte, whole bool,
) (*corev1.ConfigMap, error) {
	return configMap(ctx, ref, whole,
		c.objects.RESTClient().Patch(types.StrategicMergePatchType).Param("fieldManager", annotation.FieldManager).Body(body))
}

// Apply sends a server-side apply and returns the resulting object, or only its metadata. It is forced, because an
// existing status annotation belongs to before-first-apply. The keys are new, so they have no other owner.
func (c *Client) Apply(
	ctx context.Context, ref types.NamespacedName, body []byte, whole bool,
) (*corev1.ConfigMap, error) {
	return configMap(ctx, ref, whole, c.objects.RESTClient().Patch(types.ApplyPatchType).
		Param("fieldManager", annotation.FieldManager).Param("force", "true").Body(body))
}

// Read returns the current object, or only its metadata.
func (c *Client) Read(ctx context.Context, ref types.NamespacedName, whole bool) (*corev1.ConfigMap, error) {
	return configMap(ctx, ref, whole, c.objects.RESTClient().Get())
}

// acceptMetadata requests the metadata of an object instead of the object.
const acceptMetadata = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// configMap makes a request that returns a ConfigMap. It is cheaper than client-go/metadata, which encodes its options
// for each request, and than Namespace, Resource and Name, which join the path several times. The names are valid.
func configMap(
	ctx context.Context, ref types.NamespacedName, whole bool, request *rest.Request,
) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	request = request.AbsPath("/api/v1/namespaces", ref.Namespace, "configmaps", ref.Name)
	if whole {
		cm := new(corev1.ConfigMap)
		return cm, request.Do(ctx).Into(cm)
	}
	m := new(metav1.PartialObjectMetadata)
	err := request.SetHeader("Accept", acceptMetadata).Do(ctx).Into(m)
	return &corev1.ConfigMap{ObjectMeta: m.ObjectMeta}, err
}

// maxRetryAfter is the maximum pause that one response can request.
const maxRetryAfter = 30 * time.Second

// retryAfterErrors turns responses with Retry-After (RFC 9110 section 10.2.3) into errors. client-go
// would wait inside the request and occupy its slot, but only the circuit breaker waits for the API
// server.
type retryAfterErrors struct {
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (e retryAfterErrors) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := e.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return response, nil
	}
	after, present := delaySeconds(response.Header.Get("Retry-After"))
	if !present {
		return response, nil
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/") {
		// A Status repeats the pause, and its message says whether an admission webhook refused the request.
		response.Header.Del("Retry-After")
		return response, nil
	}
	_ = response.Body.Close()
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: int32(response.StatusCode), Details: &metav1.StatusDetails{RetryAfterSeconds: int32(after / time.Second)},
		Message: fmt.Sprintf("API server responded %d, asks to come back in %v", response.StatusCode, after),
	}}
}

// delaySeconds parses the only form of Retry-After that API servers use.
func delaySeconds(value string) (time.Duration, bool) {
	seconds, err := strconv.ParseUint(value, 10, 31)
	return time.Duration(seconds) * time.Second, err == nil
}

// WrappedRoundTripper gives client-go access to the wrapped round tripper.
func (e retryAfterErrors) WrappedRoundTripper() http.RoundTripper { return e.next }
