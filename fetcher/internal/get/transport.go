package get

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/credential"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

const (
	// maxHeaderBytes is the maximum size of the headers of a response, including interim ones (1xx).
	maxHeaderBytes = 64 << 10
	// idleTimeout is how long an idle connection is kept.
	idleTimeout = 30 * time.Second
	// maxIdle is the maximum number of idle connections per policy. There is no limit per host,
	// because a host has at most one connection per slot, and dialling again costs more.
	maxIdle = 64
)

// transportKey selects the connections for a request. Requests with different credentials use
// different ones, so a server that mixes up the responses on a connection cannot leak a response to
// others.
type transportKey struct {
	policy *egress.Policy
	grants grants
	roots  *x509.CertPool
	// direct connections bypass the egress proxy.
	direct bool
	// entry is the entry of the identity, if there is one.
	entry    *headerEntry
	identity *credential.Identity
}

// transport returns the connection pool for a hop of a resolved request with credentials to a host.
func (c *Client) transport(r Request, secrets credentials, host string) *http.Transport {
	k := transportKey{
		policy: r.policy, grants: r.grants, direct: c.isDirect(r.policy, host), roots: c.roots.Value(),
	}
	if secrets.identity != nil {
		k.entry, k.identity = secrets.entry, secrets.identity
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.transports[k]
	if !ok {
		t = c.newTransport(k)
		c.transports[k] = t
	}
	return t
}

// isDirect reports whether a host is reached without a proxy.
func (c *Client) isDirect(policy *egress.Policy, host string) bool {
	return c.proxy == nil || policy.IsDirect(host)
}

// isGone reports whether no future request can use a key.
func (c *Client) isGone(k transportKey) bool {
	of := k.grants
	return !c.deps.Gate.InForce(k.policy) || c.roots.Value() != k.roots ||
		of.operator.file != nil && of.operator.file != c.headers.Value() ||
		of.team.file != nil && of.team.file != c.team.Value() ||
		k.identity != nil && k.entry.tls() != k.identity
}

// sweep closes the connections of keys that are gone.
func (c *Client) sweep(isGone func(transportKey) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, t := range c.transports {
		if isGone(k) {
			t.CloseIdleConnections()
			delete(c.transports, k)
		}
	}
}

func (c *Client) newTransport(k transportKey) *http.Transport {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: k.roots}
	if k.identity != nil {
		secure.Certificates, secure.RootCAs = k.identity.Certificates, cmp.Or(k.identity.Roots, k.roots)
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	t := &http.Transport{
		// With HTTP/2, one GET dialled a server that sends GOAWAY thousands of times.
		Protocols:              &http1,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    c.cfg.TLSTimeout,
		ResponseHeaderTimeout:  c.cfg.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
	}
	dial := k.policy.DialContext
	if !k.direct {
		dial = c.dialProxy
		c.useProxy(t, k.policy)
		// The proxy itself never gets a client certificate.
		secure = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: k.roots}
	}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newDeferredConn(conn), nil
	}
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c.handshake(ctx, conn, addr, secure)
	}
	return t
}

// handshake makes a TLS connection and marks its failures, because crypto/tls has no types for most
// of them.
func (c *Client) handshake(ctx context.Context, conn net.Conn, addr string, cfg *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.TLSTimeout, errTimeout(c.cfg.TLSTimeout))
	defer cancel()
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.ServerName = name
	secured := tls.Client(conn, cfg)
	// http.Transport calls these hooks for its own handshakes only.
	hooks := httptrace.ContextClientTrace(ctx)
	if hooks != nil && hooks.TLSHandshakeStart != nil {
		hooks.TLSHandshakeStart()
	}
	err = secured.HandshakeContext(ctx)
	if hooks != nil && hooks.TLSHandshakeDone != nil {
		hooks.TLSHandshakeDone(secured.ConnectionState(), err)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &handshakeError{err}
	}
	return newDeferredConn(secured), nil
}

// useProxy sends requests to the operator's proxy, and to nothing else, after the policy has permitted
// every address that the proxy may choose.
func (c *Client) useProxy(t *http.Transport, policy *egress.Policy) {
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if err := policy.Admit(r.Context(), r.URL); err != nil {
			return nil, err
		}
		return c.proxy, nil
	}
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
		if answer.StatusCode != http.StatusOK {
			return errProxyFailed
		}
		return nil
	}
}

func (c *Client) dialProxy(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: c.deps.Gate.DialTimeout()}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, errors.Join(errProxyFailed, err)
	}
	return conn, nil
}
