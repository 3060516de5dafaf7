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
	curlmethatv1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// What this package finds wrong by itself.
var (
	errDeadline    = errors.New("deadline passed")
	errRedirects   = errors.New("too many redirects")
	errDowngrade   = errors.New("redirect from https to http")
	errLocation    = errors.New("redirect without a usable Location")
	errStatus      = errors.New("unexpected status")
	errTooLarge    = errors.New("body exceeds the limit")
	errCoding      = errors.New("content coding that was not asked for")
	errProxyFailed = errors.New("egress proxy failed")
	errUntrusted   = errors.New("credentials for a request that is not trusted")
)

// handshakeError marks what went wrong in a TLS handshake.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// failure turns the cause of a failed GET into an Error. This is the one place
// where causes are distinguished; the first rule that fits decides.
func (x *exchange) failure(cause error) *Error {
	e := &Error{
		Host: x.host, StatusCode: x.status, RetryAfter: x.retryAfter, Redirected: x.redirected, Redirects: x.hops,
		Detail: detail(cause), Snippet: x.snippet, cause: cause,
	}
	if e.Class, e.phrase = x.classify(cause); e.Class == curlmethatv1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE {
		e.Limit = x.limit
	}
	return e
}

func (x *exchange) classify(cause error) (curlmethatv1.FailureClass, string) {
	var denied *egress.DeniedError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(cause, &denied):
		if x.hops > 0 {
			return curlmethatv1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED,
				"was redirected to a URL that the egress policy denies: " + denied.Error()
		}
		return curlmethatv1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, "is denied by the egress policy: " + denied.Error()
	case errors.Is(cause, errUntrusted):
		return curlmethatv1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, "would carry credentials, and is not known to be asked for by the watcher"
	case errors.Is(cause, errRedirects):
		return curlmethatv1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS,
			fmt.Sprintf("was redirected more than %d times", x.client.cfg.MaxRedirects)
	case errors.Is(cause, errDowngrade):
		return curlmethatv1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS, "was redirected from https to http"
	case errors.Is(cause, errLocation):
		return curlmethatv1.FailureClass_FAILURE_CLASS_BAD_RESPONSE,
			fmt.Sprintf("answered %d without a usable Location", x.status)
	case errors.Is(cause, errStatus):
		return curlmethatv1.FailureClass_FAILURE_CLASS_BAD_STATUS, fmt.Sprintf("answered %d", x.status)
	case errors.Is(cause, errTooLarge):
		return curlmethatv1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE,
			fmt.Sprintf("answered with a body of more than %d bytes", x.limit)
	case errors.Is(cause, errCoding):
		return curlmethatv1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, "answered with a Content-Encoding that was not asked for"
	case errors.Is(cause, errProxyFailed):
		return curlmethatv1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, "did not get through the egress proxy"
	case errors.As(cause, &dns):
		return curlmethatv1.FailureClass_FAILURE_CLASS_DNS_FAILED, "failed: the host name did not resolve"
	case errors.Is(cause, errDeadline), errors.As(cause, &timeout) && timeout.Timeout():
		return curlmethatv1.FailureClass_FAILURE_CLASS_TIMEOUT, "did not finish in time"
	case isTLS(cause):
		return curlmethatv1.FailureClass_FAILURE_CLASS_TLS_FAILED, "failed: " + condition.Detail(&curlmethatv1.Failure{Detail: tlsDetail(cause)})
	case !x.gotResponse():
		return curlmethatv1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, "failed: no connection, or closed without an answer"
	case isCut(cause), x.ended():
		return curlmethatv1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, "broke off before the answer was complete"
	}
	return curlmethatv1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, "answered with something that is not valid HTTP"
}

func isTLS(err error) bool {
	var handshake *handshakeError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &handshake) || errors.As(err, &certificate) ||
		errors.As(err, &record) || errors.As(err, &alert)
}

// detail returns what is known of a cause beyond its class.
func detail(cause error) curlmethatv1.FailureDetail {
	var denied *egress.DeniedError
	switch {
	case errors.As(cause, &denied):
		return deniedDetail(denied.Class)
	case errors.Is(cause, errUntrusted):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
	case errors.Is(cause, errRedirects):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT
	case errors.Is(cause, errDowngrade):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_REDIRECT_DOWNGRADE
	case errors.Is(cause, errLocation):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_REDIRECT_LOCATION
	case errors.Is(cause, errCoding):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING
	case errors.Is(cause, errProxyFailed):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_PROXY
	case isTLS(cause):
		return tlsDetail(cause)
	}
	return curlmethatv1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED
}

// deniedDetail names the rule of the egress policy that refused.
func deniedDetail(class egress.Class) curlmethatv1.FailureDetail {
	switch class {
	case egress.ClassScheme:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME
	case egress.ClassDenyHost:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_HOST
	case egress.ClassOnlyHost:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED
	case egress.ClassName:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_NAME
	case egress.ClassPort:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_PORT
	case egress.ClassAddress:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS
	case egress.ClassDenyCIDR:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE
	case egress.ClassSyntax, egress.ClassLength, egress.ClassUserinfo, egress.ClassHost:
	}
	return curlmethatv1.FailureDetail_FAILURE_DETAIL_DENIED_URL
}

// tlsDetail names what is wrong with a certificate.
func tlsDetail(err error) curlmethatv1.FailureDetail {
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME
	case errors.As(err, &hostname):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST
	case errors.As(err, &authority):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY
	case errors.As(err, &certificate), errors.As(err, &invalid):
		return curlmethatv1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID
	}
	return curlmethatv1.FailureDetail_FAILURE_DETAIL_HANDSHAKE
}

// isCut reports whether the connection ended in the middle of an answer.
func isCut(err error) bool {
	var operation *net.OpError
	var errno syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &operation) || errors.As(err, &errno)
}
