package get

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// Error means that a GET failed. Its text is one sentence without any address, text of a server, query or credentials.
type Error struct {
	Class  v1.FailureClass
	Detail v1.FailureDetail
	// Further details of a denial: the other rules that deny the URL.
	Further []v1.FailureDetail
	// Limit that a body exceeded, in bytes (zero for other failures).
	Limit int64
	// TimeLimit that was exceeded (zero for other failures, or if it is unknown).
	TimeLimit time.Duration
	// SHA256 of a body that is not the required one.
	SHA256 string
	// Redirects that were followed before.
	Redirects int
	// StatusCode of the response (zero without one).
	StatusCode int
	// RetryAfter is the wait that the server requested, not clamped. Zero if none.
	RetryAfter time.Duration
	// Redirected reports whether the response came from another origin than the requested URL's.
	Redirected bool
	// Snippet is the start of the body of a response with a bad status, or of one that fails the rules, at most
	// pipeline.MaxSnippet bytes. It is for dead letters only, never for Events or logs. A response to a credential has
	// none.
	Snippet []byte
	// Credential is the source of a credential that a server rejected or that is missing: an entry, a
	// Secret, or the host of a token URL. It is never a credential.
	Credential string
	// Settings identifies the settings that may end the failure, see Client.SettingsChanged (empty: none).
	Settings string
	// Host of the requested URL, in lower case; never the host of a redirect.
	Host string

	cause error
}

// Failure returns the failure as it is published.
func (e *Error) Failure() *v1.Failure {
	f := &v1.Failure{
		Class: e.Class, Detail: e.Detail, Further: e.Further, StatusCode: int32(e.StatusCode),
		LimitBytes: e.Limit, Redirects: uint32(e.Redirects), Sha256: e.SHA256, Credential: e.Credential,
	}
	if e.TimeLimit > 0 {
		f.TimeLimit = durationpb.New(e.TimeLimit)
	}
	return f
}

// Error describes the failure.
func (e *Error) Error() string {
	host := e.Host
	if _, err := netip.ParseAddr(host); err == nil {
		host = weburl.HiddenHost
	} else if host == "" {
		host = "the host of the URL"
	}
	return sentence.OfHost(host, e.Failure())
}

// Unwrap returns the cause, only for errors.Is and debugging, because its text may contain
// addresses and text of the server.
func (e *Error) Unwrap() error { return e.cause }

// Failures that this package detects itself.
var (
	errDowngrade   = newError(failure.TooManyRedirects, failure.RedirectDowngrade)
	errRedirects   = newError(failure.TooManyRedirects, failure.RedirectLimit)
	errCoding      = newError(failure.BadResponse, failure.ContentEncoding)
	errGzip        = newError(failure.BadResponse, failure.BadGzip)
	errHTTP2       = newError(failure.BadResponse, failure.HTTP2Only)
	errNotHTTP     = newError(failure.BadResponse, failure.NotHTTP)
	errLocation    = newError(failure.BadResponse, failure.RedirectLocation)
	errProxyFailed = newError(failure.ConnectFailed, failure.Proxy)
	errUntrusted   = newError(failure.AddressDenied, failure.DeniedCredentials)
)

func newError(class v1.FailureClass, detail v1.FailureDetail) *Error {
	return &Error{Class: class, Detail: detail}
}

func (h hopEnd) errStatus() *Error {
	e := &Error{Class: failure.BadStatus}
	switch {
	case h.retryAfter > 0 && asksForPause(h.status):
		e.Detail = failure.RetryAfter
	case h.hop.certificateDetail == failure.ClientCertificate &&
		slices.Contains([]int{400, 401, 403, 495, 496}, h.status): // nginx has 400, and 495 and 496 within
		e.Detail = h.hop.certificateDetail
	}
	return e
}

func errTimeout(limit time.Duration) *Error {
	return &Error{Class: failure.Timeout, TimeLimit: limit}
}

func errTooLarge(limit int64) *Error {
	return &Error{Class: failure.BodyTooLarge, Limit: limit}
}

// handshakeError marks an error of a TLS handshake.
type handshakeError struct{ error }

func (h *handshakeError) Unwrap() error { return h.error }

// failure returns the Error for the end of a failed GET.
func (x *exchange) failure(end hopEnd) *Error {
	e := x.classify(end.err, cmp.Or(end.hop, new(hop)))
	e.Host, e.Redirected, e.Redirects = x.host, x.redirected, x.redirects
	e.StatusCode, e.RetryAfter, e.Snippet = end.status, end.retryAfter, end.snippet
	e.cause = end.err
	return &e
}

// classify returns class and detail of a failure in a hop. Failures that this package detects already have
// them. This is the only place that distinguishes other causes. The first matching rule applies.
func (x *exchange) classify(cause error, h *hop) Error {
	var denied *egress.DeniedError
	var own *Error
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(cause, &own):
		return *own
	case errors.As(cause, &denied):
		return Error{Class: failure.AddressDenied, Detail: denied.Detail(), Further: denied.FurtherDetails()}
	case errors.As(cause, &dns) && (dns.IsNotFound || !dns.IsTimeout && !dns.IsTemporary):
		return Error{Class: failure.DNSFailed}
	case errors.As(cause, &dns):
		return Error{Class: failure.DNSFailed, Detail: failure.DNSUnavailable}
	case errors.As(cause, &timeout) && timeout.Timeout():
		return x.timedOut(cause)
	case !h.responded && h.wantsCertificate(cause):
		return Error{Class: failure.TLSFailed, Detail: h.certificateDetail}
	case !h.responded && isTLS(cause):
		return Error{Class: failure.TLSFailed, Detail: tlsDetail(cause)}
	case !h.responded:
		return Error{Class: failure.ConnectFailed, Detail: connectDetail(cause)}
	case isCut(cause), h.wire.err != nil:
		return Error{Class: failure.BadResponse, Detail: failure.CutOff}
	case strings.Contains(cause.Error(), " transfer encoding"): // net/http exports no type
		return Error{Class: failure.BadResponse, Detail: failure.TransferEncoding}
	}
	return Error{Class: failure.BadResponse, Detail: failure.NotHTTP}
}

// timedOut returns the failure for the time limit of a dial or of the headers.
func (x *exchange) timedOut(cause error) Error {
	var operation *net.OpError
	if errors.As(cause, &operation) && operation.Op == "dial" {
		e := errTimeout(x.client.deps.Gate.DialTimeout())
		e.Detail = failure.ConnectTimeout
		return *e
	}
	return *errTimeout(x.client.cfg.HeaderTimeout)
}

// connectDetail returns the detail of a failure before the first byte of a response.
func connectDetail(err error) v1.FailureDetail {
	var operation *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure.ConnectionRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return failure.NoRoute
	case errors.As(err, &operation) && operation.Op == "dial", errors.Is(err, egress.ErrUnreachable):
		return failure.NoDetail
	}
	return failure.Closed
}

func isTLS(err error) bool {
	var handshake *handshakeError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &handshake) || errors.As(err, &certificate) ||
		errors.As(err, &record) || alert(err) != ""
}

// alert returns the number of the TLS alert that the server sent, or "". The type of an alert is not exported.
func alert(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "remote error" {
		return fmt.Sprintf("%d", operation.Err)
	}
	return ""
}

// noApplicationProtocol is the alert of a server that speaks no HTTP/1.1 (RFC 7301 section 3.2).
const noApplicationProtocol = "120"

// tlsDetail returns the detail of a failed handshake.
func tlsDetail(err error) v1.FailureDetail {
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	selfIssued := func(c *x509.Certificate) bool { return bytes.Equal(c.RawIssuer, c.RawSubject) }
	switch {
	case alert(err) == noApplicationProtocol:
		return failure.HTTP2Only
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return failure.PlainHTTP
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failure.CertificateTime
	case errors.As(err, &hostname) && isNameless(hostname.Certificate):
		return failure.CertificateNameless
	case errors.As(err, &hostname):
		return failure.CertificateHost
	case errors.As(err, &authority) && errors.As(err, &certificate) &&
		!slices.ContainsFunc(certificate.UnverifiedCertificates, selfIssued):
		return failure.CertificateChain
	case errors.As(err, &authority):
		return failure.CertificateAuthority
	case errors.As(err, &certificate), errors.As(err, &invalid):
		return failure.CertificateInvalid
	}
	return failure.Handshake
}

// isNameless reports whether a certificate has no subject alternative name.
func isNameless(c *x509.Certificate) bool {
	return len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses)+len(c.URIs) == 0
}

// isCut reports whether the connection ended in the middle of a response.
func isCut(err error) bool {
	var operation *net.OpError
	var errno syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &operation) || errors.As(err, &errno)
}
