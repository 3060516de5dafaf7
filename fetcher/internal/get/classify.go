package get

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Failures that this package detects itself.
var (
	errDeadline  = &Error{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, phrase: "did not finish in time"}
	errDowngrade = &Error{
		Class: v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS, Detail: v1.FailureDetail_FAILURE_DETAIL_REDIRECT_DOWNGRADE,
		phrase: "was redirected from https to http",
	}
	errCoding = &Error{
		Class: v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, Detail: v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING,
		phrase: "returned a Content-Encoding that was not requested",
	}
	errProxyFailed = &Error{
		Class: v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, Detail: v1.FailureDetail_FAILURE_DETAIL_PROXY,
		phrase: "did not get through the egress proxy",
	}
	errUntrusted = &Error{
		Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Detail: v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS,
		phrase: "would carry credentials, but is not known to come from the watcher",
	}
)

func errRedirects(limit int) *Error {
	return &Error{
		Class: v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS, Detail: v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT,
		phrase: fmt.Sprintf("was redirected more than %d times", limit),
	}
}

func errLocation(status int) *Error {
	return &Error{
		Class: v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, Detail: v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LOCATION,
		phrase: fmt.Sprintf("got %d without a usable Location", status),
	}
}

func errStatus(status int) *Error {
	return &Error{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, phrase: fmt.Sprintf("answered %d", status)}
}

func errTooLarge(limit int64) *Error {
	return &Error{
		Class: v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, Limit: limit,
		phrase: fmt.Sprintf("got a body of more than %d bytes", limit),
	}
}

// handshakeError marks an error of a TLS handshake.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// failure converts the cause of a failed GET to an Error.
func (x *exchange) failure(cause error) *Error {
	e := x.classify(cause)
	e.Host, e.Redirected, e.Redirects = x.host, x.redirected, x.hops
	e.StatusCode, e.RetryAfter, e.Snippet = x.status, x.retryAfter, x.snippet
	e.cause = cause
	return &e
}

// classify returns class, detail and phrase of a failure. Failures that this package detects
// already have them. This is the only place that distinguishes other causes; the first matching
// rule applies.
func (x *exchange) classify(cause error) Error {
	var denied *egress.DeniedError
	var own *Error
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(cause, &own):
		return *own
	case errors.As(cause, &denied):
		e := Error{Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Detail: denied.Detail()}
		e.phrase = "is denied by the egress policy: " + denied.Error()
		if x.hops > 0 {
			e.phrase = "was redirected to a URL that the egress policy denies: " + denied.Error()
		}
		return e
	case errors.As(cause, &dns):
		return Error{Class: v1.FailureClass_FAILURE_CLASS_DNS_FAILED, phrase: "failed: the host name did not resolve"}
	case errors.As(cause, &timeout) && timeout.Timeout():
		return *errDeadline
	case isTLS(cause):
		detail := tlsDetail(cause)
		return Error{
			Class: v1.FailureClass_FAILURE_CLASS_TLS_FAILED, Detail: detail,
			phrase: "failed: " + condition.Detail(&v1.Failure{Detail: detail}),
		}
	case !x.gotResponse():
		return Error{
			Class:  v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED,
			phrase: "failed: no connection, or closed without a response",
		}
	case isCut(cause), x.ended():
		return Error{
			Class:  v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED,
			phrase: "broke off before the response was complete",
		}
	}
	return Error{Class: v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, phrase: "got a response that is not valid HTTP"}
}

func isTLS(err error) bool {
	var handshake *handshakeError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &handshake) || errors.As(err, &certificate) ||
		errors.As(err, &record) || errors.As(err, &alert)
}

// tlsDetail returns the detail for an invalid certificate.
func tlsDetail(err error) v1.FailureDetail {
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME
	case errors.As(err, &hostname):
		return v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST
	case errors.As(err, &authority):
		return v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY
	case errors.As(err, &certificate), errors.As(err, &invalid):
		return v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID
	}
	return v1.FailureDetail_FAILURE_DETAIL_HANDSHAKE
}

// isCut reports whether the connection ended in the middle of a response.
func isCut(err error) bool {
	var operation *net.OpError
	var errno syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &operation) || errors.As(err, &errno)
}
