package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/transport/spdy"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/kube"
)

const (
	// portForward is the protocol of the API server's port-forward.
	portForward = "portforward.k8s.io"
	// bundled selects the Service of the NATS that the chart installs.
	bundled = "app.kubernetes.io/component=nats"
	// forwardTimeout limits the requests that find NATS, and those that open a port-forward.
	forwardTimeout = 10 * time.Second
)

// forwarding is a nats.CustomDialer. Each connection is a port-forward of its own, so a reconnect opens another, to
// a pod that is ready then.
type forwarding struct {
	cluster.Clients

	service corev1.Service
	// refusal is the last sentence of a server that could not forward.
	refusal atomic.Pointer[string]
}

// findInCluster finds the NATS that the chart installed in the cluster of the kubeconfig.
func findInCluster(ctx context.Context, options kube.Options) (*forwarding, error) {
	c, _, err := cluster.Open(options, forwardTimeout)
	if err != nil {
		return nil, err
	}
	services, err := c.Core.Services("").List(ctx, metav1.ListOptions{LabelSelector: bundled})
	if err != nil {
		return nil, err
	}
	for _, service := range services.Items {
		if service.Spec.ClusterIP != corev1.ClusterIPNone && len(service.Spec.Ports) > 0 {
			return &forwarding{Clients: c, service: service}, nil
		}
	}
	return nil, errors.New("the cluster has no NATS of the chart")
}

// where names the server, as shown to users.
func (f *forwarding) where() string {
	return "service/" + f.service.Namespace + "/" + f.service.Name + " (port-forward)"
}

// options returns the options of the connection: the dialer, and the first identity whose Secret the user may read.
func (f *forwarding) options(ctx context.Context) ([]nats.Option, error) {
	// The name of the Service is for TLS only: looking it up here can take 10 s without a name server.
	options := []nats.Option{nats.SetCustomDialer(f), nats.SkipHostLookup()}
	for _, identity := range []string{Admin, Replayer, Viewer} {
		secret, err := f.Core.Secrets(f.service.Namespace).Get(ctx, f.service.Name+"-"+identity, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(secret.Data["nkey"]))))
		if err != nil {
			return nil, fmt.Errorf("read the NKey in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, err
		}
		options = append(options, nats.Nkey(public, pair.Sign))
		if ca := secret.Data["ca.crt"]; len(ca) > 0 {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(ca)
			options = append(options, nats.Secure(&tls.Config{
				MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: f.service.Name,
			}))
		}
		break
	}
	return options, nil
}

// Dial implements nats.CustomDialer, for any address.
func (f *forwarding) Dial(string, string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	pods, err := f.Core.Pods(f.service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(f.service.Spec.Selector).String(),
	})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return f.dial(pod.Name)
			}
		}
	}
	return nil, fmt.Errorf("no pod of %s/%s is ready", f.service.Namespace, f.service.Name)
}

func (f *forwarding) dial(pod string) (net.Conn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(f.Config)
	if err != nil {
		return nil, err
	}
	url := f.Core.RESTClient().Post().Resource("pods").Namespace(f.service.Namespace).Name(pod).
		SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	conn, _, err := dialer.Dial(portForward)
	if err != nil {
		return nil, fmt.Errorf("forward a port of pod %s/%s: %w", f.service.Namespace, pod, err)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, f.service.Spec.Ports[0].TargetPort.String())
	if f.service.Spec.Ports[0].TargetPort.IntValue() == 0 { // a name
		headers.Set(corev1.PortHeader, fmt.Sprint(f.service.Spec.Ports[0].Port))
	}
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, err := conn.CreateStream(headers)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	near, far := net.Pipe() // a stream has no deadlines, which the client needs
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(failure) // the server says there why it cannot forward
		said <- string(text)
		_ = conn.Close()
	}()
	go func() {
		_, _ = io.Copy(far, data)
		if text := <-said; text != "" {
			f.refusal.Store(&text)
		}
		_ = far.Close()
	}()
	go func() {
		_, _ = io.Copy(data, far)
		_ = conn.Close()
	}()
	return near, nil
}
