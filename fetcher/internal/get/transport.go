package get

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// maxHeaderBytes is the maximum size of the headers of a response, including interim ones (1xx).
const maxHeaderBytes = 64 << 10

// transport sends each request on a connection of its own. HTTP/1.1 assigns a response to a request only by the order
// of bytes, so surplus bytes of one response would be the next response on the connection. Here no request follows.
type transport struct {
	client *Client
	policy *egress.Policy
	// identity is for the host of the URL, never for the proxy. It may be nil.
	identity *clientIdentity
	hop      *hop
}

// RoundTrip sends a request. The connection ends with the body or the context of the request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(r.Context(), t.hop.trace())
	r = r.WithContext(ctx)
	direct := t.client.isDirect(t.policy, r.URL.Hostname())
	raw, err := t.dial(r, direct)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	conn, err := t.secure(r, raw, direct)
	if err == nil {
		var answer *http.Response
		if answer, err = t.send(r, conn, !direct && r.URL.Scheme == "http"); err == nil {
			answer.Body = &body{answer.Body, conn, stop}
			return answer, nil
		}
	}
	stop()
	_ = raw.Close()
	return nil, err
}

// body is the body of a response. Close ends the connection without reading the rest.
type body struct {
	io.Reader
	conn net.Conn
	stop func() bool
}

func (b *body) Close() error {
	b.stop()
	return b.conn.Close()
}

// dial connects to the host of a request, or to the operator's proxy after the policy has permitted
// every address that the proxy may choose.
func (t *transport) dial(r *http.Request, direct bool) (net.Conn, error) {
	if direct {
		return t.policy.DialContext(r.Context(), "tcp", egress.Authority(r.URL))
	}
	if err := t.policy.CheckForProxy(r.Context(), r.URL); err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: t.client.deps.Gate.DialTimeout()}
	conn, err := dialer.DialContext(r.Context(), "tcp", egress.Authority(t.client.proxy))
	if err != nil {
		return nil, errors.Join(errProxyFailed, err)
	}
	return conn, nil
}

// secure adds TLS to a connection if the URL or the proxy has it.
func (t *transport) secure(r *http.Request, conn net.Conn, direct bool) (net.Conn, error) {
	roots := t.client.roots.Value()
	t.hop.wire = &wire{Conn: conn}
	conn = t.hop.wire
	if !direct {
		var err error
		if t.client.proxy.Scheme == "https" {
			conn, err = t.handshake(r.Context(), conn, &tls.Config{RootCAs: roots, ServerName: t.client.proxy.Hostname()})
		}
		if err == nil && r.URL.Scheme == "https" {
			err = t.tunnel(conn, egress.Authority(r.URL))
		}
		if err != nil {
			return nil, errors.Join(errProxyFailed, err)
		}
	}
	if r.URL.Scheme != "https" {
		return conn, nil
	}
	cfg := &tls.Config{
		RootCAs: roots, ServerName: r.URL.Hostname(), NextProtos: []string{"http/1.1"},
		Renegotiation: tls.RenegotiateOnceAsClient, // IIS asks for client certificates only once it knows the path
	}
	if t.identity != nil {
		cfg.RootCAs = cmp.Or(t.identity.Roots, roots)
	}
	cfg.GetClientCertificate = t.certificate
	return t.handshake(r.Context(), conn, cfg)
}

// tunnel requests a connection to a host from the proxy.
func (t *transport) tunnel(conn net.Conn, address string) error {
	answer, err := t.send(&http.Request{ //nolint:bodyclose // it ends with the connection
		Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{},
	}, conn, true)
	if err == nil && answer.StatusCode/100 != 2 { // RFC 9110 section 9.3.6
		err = errProxyFailed
	}
	return err
}

// certificate returns the client certificate, if there is one that the server may accept.
func (t *transport) certificate(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	t.hop.certificateDetail = failure.ClientCertificate
	if t.identity == nil || len(t.identity.Certificates) == 0 {
		return &tls.Certificate{}, nil
	}
	t.hop.certificateDetail = failure.ClientCertificateRefused
	if certificate := &t.identity.Certificates[0]; asked.SupportsCertificate(certificate) == nil {
		return certificate, nil
	}
	return &tls.Certificate{}, nil
}

// handshake makes a TLS connection and marks its failures, because crypto/tls has no types for most of them.
func (t *transport) handshake(ctx context.Context, conn net.Conn, cfg *tls.Config) (net.Conn, error) {
	limit := t.client.cfg.TLSTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout(limit))
	defer cancel()
	cfg.MinVersion = tls.VersionTLS12
	t.hop.wire = &wire{Conn: conn}
	secured := tls.Client(t.hop.wire, cfg)
	start := time.Now()
	err := secured.HandshakeContext(ctx)
	switch {
	case err == nil:
		t.hop.observer.phase(phaseTLS, time.Since(start))
		return &sealed{secured, t.hop.wire}, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, &handshakeError{err}
}

// send sends a request and reads the headers of its response.
func (t *transport) send(r *http.Request, conn net.Conn, toProxy bool) (*http.Response, error) {
	start := time.Now()
	_ = conn.SetDeadline(start.Add(t.client.cfg.HeaderTimeout))
	write := r.Write
	if toProxy {
		write = r.WriteProxy
		if user := t.client.proxy.User; user != nil {
			password, _ := user.Password()
			r.Header = r.Header.Clone()
			r.Header.Set("Proxy-Authorization",
				"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))) // RFC 7617
		}
	}
	var operation *net.OpError
	// A server that has stopped reading may have responded.
	head := bytes.NewBuffer(make([]byte, 0, 512)) // package http would take 4 KiB
	err := write(head)
	if err == nil {
		_, err = conn.Write(head.Bytes())
	}
	if err != nil && !errors.As(err, &operation) {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxHeaderBytes}
	reader := bufio.NewReaderSize(limited, 4<<10) // package http refuses longer trailers and lines of chunks
	if _, err := reader.Peek(1); err != nil {
		return nil, err
	}
	if r.Method != http.MethodConnect {
		t.hop.observer.phase(phaseFirstByte, time.Since(start))
		t.hop.responded = true
	}
	if start, _ := reader.Peek(min(reader.Buffered(), h2FrameHeader)); isSettings(start) {
		return nil, errHTTP2
	}
	for {
		start, _ := reader.Peek(len("HTTP/1.x"))
		if !strings.HasPrefix(string(start), "HTTP/"[:min(5, len(start))]) { // such as a TLS alert, after which servers close
			return nil, errNotHTTP
		}
		if beforeHTTP11.Match(start) { // servers chunk such responses, too, but package http would ignore that
			copy(start, "HTTP/1.1") // in the buffer of the reader
		}
		answer, err := http.ReadResponse(reader, r)
		switch {
		case err != nil && limited.N <= 0:
			return nil, errNotHTTP
		case err != nil:
			return nil, errors.Join(err, t.hop.wire.err)
		case hidden(answer.Header, "Transfer-Encoding") != nil, hidden(answer.Header, "Content-Encoding") != nil:
			return nil, errNotHTTP // the body would stay coded
		case toProxy && answer.StatusCode == http.StatusProxyAuthRequired:
			return nil, errProxyFailed
		case answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols:
			limited.N = math.MaxInt64
			return answer, conn.SetDeadline(time.Time{})
		}
	}
}

// beforeHTTP11 matches the versions before HTTP/1.1.
var beforeHTTP11 = regexp.MustCompile(`^HTTP/(?:0\.[0-9]|1\.0)$`)

// h2FrameHeader is the size of the header of an HTTP/2 frame (RFC 9113 section 4.1).
const h2FrameHeader = 9

// isSettings reports whether a response starts with the SETTINGS frame of HTTP/2, which a server
// that speaks nothing else sends first.
func isSettings(start []byte) bool {
	return len(start) == h2FrameHeader && string(start[3:]) == "\x04\x00\x00\x00\x00\x00"
}

// wire is a connection below TLS, if there is TLS.
type wire struct {
	net.Conn
	ended bool
	// err is the error that ended the response, which the parser reports as a malformed one.
	err error
}

// Read never returns data together with an error: the data may be the close_notify of TLS.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		return n, nil
	}
	w.ended, w.err = err != nil, err
	return 0, err
}

// sealed is a TLS connection that ends properly only with close_notify (RFC 9112 section 9.8). Without
// it, crypto/tls reports io.EOF just the same, and anybody on the path could shorten a body.
type sealed struct {
	*tls.Conn
	wire *wire
}

func (s *sealed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) && s.wire.ended {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		s.wire.err = err
	}
	return n, err
}
