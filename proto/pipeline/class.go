package pipeline

import (
	"net/http"
	"strings"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Reasons of Events that are not failures of a fetch.
const (
	// ReasonDrifted: a key that we wrote was changed or removed.
	ReasonDrifted = "Drifted"
	// ReasonContested: drift recurs, and repairs are slowed down.
	ReasonContested = "Contested"
	// ReasonHeldBack: a namespace removes so many keys at once that the brake stops all removals.
	ReasonHeldBack = "RemovalHeldBack"
	// ReasonAdjusted: an annotation is followed within an operator's limit.
	ReasonAdjusted = "AnnotationAdjusted"
	// ReasonRecovered: a failure is over.
	ReasonRecovered = "Recovered"
)

// class describes a failure class.
type class struct {
	reason string
	// retry reports that another attempt may succeed soon.
	retry bool
}

// classOf has, for each failure class, the reason of the Event, which is also the token in a dead
// letter's subject and the value of metric labels, and whether a fetch is retried soon.
func classOf(c v1.FailureClass) class {
	switch c {
	case v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION:
		return class{reason: "InvalidAnnotation"}
	case v1.FailureClass_FAILURE_CLASS_KEY_EXISTS:
		return class{reason: "KeyExists"}
	case v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED:
		return class{reason: "AddressDenied"}
	case v1.FailureClass_FAILURE_CLASS_DNS_FAILED:
		return class{reason: "DNSFailed", retry: true}
	case v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:
		return class{reason: "ConnectFailed", retry: true}
	case v1.FailureClass_FAILURE_CLASS_TLS_FAILED:
		return class{reason: "TLSFailed", retry: true}
	case v1.FailureClass_FAILURE_CLASS_TIMEOUT:
		return class{reason: "Timeout", retry: true}
	case v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS:
		return class{reason: "TooManyRedirects"}
	case v1.FailureClass_FAILURE_CLASS_BAD_STATUS:
		return class{reason: "BadStatus"}
	case v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE:
		return class{reason: "BodyTooLarge"}
	case v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH:
		return class{reason: "DigestMismatch"}
	case v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED:
		return class{reason: "ContentRejected"}
	case v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE:
		return class{reason: "BadResponse"}
	case v1.FailureClass_FAILURE_CLASS_WRITE_FAILED:
		return class{reason: "WriteFailed"}
	case v1.FailureClass_FAILURE_CLASS_IMMUTABLE:
		return class{reason: "Immutable"}
	case v1.FailureClass_FAILURE_CLASS_POISON:
		return class{reason: "Poison"}
	case v1.FailureClass_FAILURE_CLASS_MALFORMED:
		return class{reason: "Malformed"}
	case v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED:
		return class{reason: "CredentialsFailed", retry: true}
	case v1.FailureClass_FAILURE_CLASS_UNSPECIFIED:
	}
	return class{reason: "Unknown"}
}

// Reason returns the Event reason of a failure class, in CamelCase.
func Reason(c v1.FailureClass) string { return classOf(c).reason }

// ClassOf is the inverse of Reason; unknown reasons are unspecified.
func ClassOf(reason string) v1.FailureClass {
	for n := range v1.FailureClass_name {
		if c := v1.FailureClass(n); c != 0 && classOf(c).reason == reason {
			return c
		}
	}
	return v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
}

// CauseName returns the name of a cause in metric labels and traces, such as refresh.
func CauseName(c v1.Cause) string { return strings.ToLower(strings.TrimPrefix(c.String(), "CAUSE_")) }

// Retries reports whether a key is retried with back-off after that many failed attempts; limit is
// the maximum in a row. If not, the key waits for its next refresh or recheck, and a dead letter
// holds the failure.
func Retries(f *v1.Failure, attempts, limit uint32) bool {
	switch c := f.GetClass(); {
	case attempts >= limit, f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP:
		return false
	case c == v1.FailureClass_FAILURE_CLASS_BAD_STATUS:
		return retryStatus(int(f.GetStatusCode()))
	default:
		return classOf(c).retry || f.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_CUT_OFF
	}
}

// retryStatus reports whether a status suggests another attempt (RFC 9110 section 15.5.9 and 15.6,
// RFC 6585 section 4, RFC 8470 section 5.2).
func retryStatus(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return code >= 500 && code < 600
}
