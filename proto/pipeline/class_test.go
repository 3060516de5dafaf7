package pipeline_test

import (
	"regexp"
	"testing"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestReasons(t *testing.T) {
	t.Parallel()
	camelCase := regexp.MustCompile(`^([A-Z][a-z]+|[A-Z]{2,}[A-Z][a-z]+)+$`)
	seen := map[string]v1.FailureClass{}
	for n, name := range v1.FailureClass_name {
		class := v1.FailureClass(n)
		reason := pipeline.Reason(class)
		if !camelCase.MatchString(reason) {
			t.Errorf("%s has the reason %q, which is not CamelCase", name, reason)
		}
		if other, ok := seen[reason]; ok {
			t.Errorf("%s and %s share the reason %q", name, other, reason)
		}
		seen[reason] = class
		if got := pipeline.ClassOf(reason); got != class {
			t.Errorf("ClassOf(%q) = %s, want %s", reason, got, name)
		}
	}
	if got := pipeline.Reason(99); got != "Unknown" {
		t.Errorf("Reason(99) = %q: a newer version's class must have a reason", got)
	}
	for _, unknown := range []string{"", "timeout", "Nonsense", "Unknown"} {
		if got := pipeline.ClassOf(unknown); got != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
			t.Errorf("ClassOf(%q) = %s", unknown, got)
		}
	}
}

func TestReasonsAreThoseOfTheManual(t *testing.T) {
	t.Parallel()
	for reason, class := range map[string]v1.FailureClass{
		"InvalidAnnotation": v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION,
		"KeyExists":         v1.FailureClass_FAILURE_CLASS_KEY_EXISTS,
		"AddressDenied":     v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED,
		"DNSFailed":         v1.FailureClass_FAILURE_CLASS_DNS_FAILED,
		"ConnectFailed":     v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED,
		"TLSFailed":         v1.FailureClass_FAILURE_CLASS_TLS_FAILED,
		"Timeout":           v1.FailureClass_FAILURE_CLASS_TIMEOUT,
		"TooManyRedirects":  v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS,
		"BadStatus":         v1.FailureClass_FAILURE_CLASS_BAD_STATUS,
		"BodyTooLarge":      v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE,
		"DigestMismatch":    v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH,
		"ContentRejected":   v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED,
		"WriteFailed":       v1.FailureClass_FAILURE_CLASS_WRITE_FAILED,
		"Immutable":         v1.FailureClass_FAILURE_CLASS_IMMUTABLE,
	} {
		if got := pipeline.Reason(class); got != reason {
			t.Errorf("Reason(%s) = %q, want %q", class, got, reason)
		}
	}
}

func retries(class v1.FailureClass, status int, attempts, limit uint32) bool {
	return pipeline.Retries(&v1.Failure{Class: class, StatusCode: int32(status)}, attempts, limit)
}

func TestRetries(t *testing.T) {
	t.Parallel()
	retried := map[v1.FailureClass]bool{
		v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         true,
		v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     true,
		v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         true,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT:            true,
		v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED: true,
	}
	for n, name := range v1.FailureClass_name {
		class := v1.FailureClass(n)
		if got := retries(class, 0, 1, 3); got != retried[class] {
			t.Errorf("Retries(%s, 0, 1, 3) = %t", name, got)
		}
		for _, attempts := range []uint32{3, 4} {
			if retries(class, 503, attempts, 3) {
				t.Errorf("Retries(%s, 503, %d, 3)", name, attempts)
			}
		}
	}
	if retries(v1.FailureClass_FAILURE_CLASS_TIMEOUT, 0, 0, 0) {
		t.Error("a limit of 0 attempts allows another")
	}
	for detail, want := range map[v1.FailureDetail]bool{
		v1.FailureDetail_FAILURE_DETAIL_CUT_OFF: true, v1.FailureDetail_FAILURE_DETAIL_NOT_HTTP: false,
	} {
		f := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, Detail: detail}
		if pipeline.Retries(f, 1, 3) != want {
			t.Errorf("Retries(%s) = %t", detail, !want)
		}
	}
	plain := &v1.Failure{
		Class:  v1.FailureClass_FAILURE_CLASS_TLS_FAILED,
		Detail: v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP,
	}
	if pipeline.Retries(plain, 1, 3) {
		t.Error("a server without TLS is asked again soon")
	}
	for detail, want := range map[v1.FailureDetail]bool{
		v1.FailureDetail_FAILURE_DETAIL_COSTLY: true, v1.FailureDetail_FAILURE_DETAIL_NOT_JSON: false,
		v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE: false,
	} {
		f := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, Detail: detail}
		if pipeline.Retries(f, 1, 3) != want {
			t.Errorf("Retries(%s) = %t", detail, !want)
		}
	}
}

func TestRetriesByStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		0: false, 201: false, 204: false, 301: false,
		400: false, 401: false, 403: false, 404: false, 410: false,
		408: true, 425: true, 429: true,
		500: true, 502: true, 503: true, 504: true, 520: true, 599: true,
		501: false, 505: false, 600: false, -1: false,
	} {
		if got := retries(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, status, 1, 3); got != want {
			t.Errorf("Retries(BAD_STATUS, %d, 1, 3) = %t", status, got)
		}
	}
	// Other classes ignore the status.
	if retries(v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, 503, 1, 3) {
		t.Error("Retries(BODY_TOO_LARGE, 503, 1, 3)")
	}
}
