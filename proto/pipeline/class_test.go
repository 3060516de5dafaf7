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
		"WriteFailed":       v1.FailureClass_FAILURE_CLASS_WRITE_FAILED,
		"Immutable":         v1.FailureClass_FAILURE_CLASS_IMMUTABLE,
	} {
		if got := pipeline.Reason(class); got != reason {
			t.Errorf("Reason(%s) = %q, want %q", class, got, reason)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	retried := map[v1.FailureClass]bool{
		v1.FailureClass_FAILURE_CLASS_DNS_FAILED:     true,
		v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED: true,
		v1.FailureClass_FAILURE_CLASS_TLS_FAILED:     true,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT:        true,
	}
	for n, name := range v1.FailureClass_name {
		class, want := v1.FailureClass(n), pipeline.NextGiveUp
		if retried[class] {
			want = pipeline.NextRetry
		}
		if got := pipeline.Decide(class, 0, 1, 3); got != want {
			t.Errorf("Decide(%s, 0, 1, 3) = %d, want %d", name, got, want)
		}
		for _, attempts := range []uint32{3, 4} {
			if got := pipeline.Decide(class, 503, attempts, 3); got != pipeline.NextGiveUp {
				t.Errorf("Decide(%s, 503, %d, 3) = %d, want GiveUp", name, attempts, got)
			}
		}
	}
	if got := pipeline.Decide(v1.FailureClass_FAILURE_CLASS_TIMEOUT, 0, 0, 0); got != pipeline.NextGiveUp {
		t.Errorf("a limit of 0 attempts allows another: %d", got)
	}
}

func TestDecideByStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]pipeline.Next{
		0: pipeline.NextGiveUp, 201: pipeline.NextGiveUp, 204: pipeline.NextGiveUp, 301: pipeline.NextGiveUp,
		400: pipeline.NextGiveUp, 401: pipeline.NextGiveUp, 403: pipeline.NextGiveUp, 404: pipeline.NextGiveUp, 410: pipeline.NextGiveUp,
		408: pipeline.NextRetry, 425: pipeline.NextRetry, 429: pipeline.NextRetry,
		500: pipeline.NextRetry, 502: pipeline.NextRetry, 503: pipeline.NextRetry, 504: pipeline.NextRetry, 520: pipeline.NextRetry, 599: pipeline.NextRetry,
		501: pipeline.NextGiveUp, 505: pipeline.NextGiveUp, 600: pipeline.NextGiveUp, -1: pipeline.NextGiveUp,
	} {
		if got := pipeline.Decide(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, status, 1, 3); got != want {
			t.Errorf("Decide(BAD_STATUS, %d, 1, 3) = %d, want %d", status, got, want)
		}
	}
	// A status counts for nothing in other classes.
	if got := pipeline.Decide(v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, 503, 1, 3); got != pipeline.NextGiveUp {
		t.Errorf("Decide(BODY_TOO_LARGE, 503, 1, 3) = %d, want GiveUp", got)
	}
}
