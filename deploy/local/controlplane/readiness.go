package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// readiness asks the API server whether a client may begin.
type readiness struct {
	client *http.Client
	server string
}

func (c *ControlPlane) newReadiness() (*readiness, error) {
	certificate, key, err := c.authority.issue(adminTemplate())
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("load the client certificate: %w", err)
	}
	config := &tls.Config{RootCAs: c.authority.pool(), Certificates: []tls.Certificate{pair}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 5 * time.Second}
	return &readiness{client: client, server: c.server()}, nil
}

// ready asks for the namespace too, since the API server creates it after it
// reports that it is ready.
func (r *readiness) ready(ctx context.Context) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		if err := r.get(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (r *readiness) get(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server+path, nil)
	if err != nil {
		return err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// A body that was read lets the connection be used again.
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, response.Status)
	}
	return nil
}

func (r *readiness) close() {
	r.client.CloseIdleConnections()
}
