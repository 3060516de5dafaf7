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

func TestRetries(t *testing.T) {
	t.Parallel()
	retried := map[v1.FailureClass]bool{
		v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         true,
		v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     true,
		v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         true,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT:            true,
		v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED: true,
	}
	for n := range v1.FailureClass_name {
		f := &v1.Failure{Class: v1.FailureClass(n)}
		expectRetries(t, f, retried[f.GetClass()])
		if f.StatusCode = 503; pipeline.Retries(f, 3, 3) || pipeline.Retries(f, 0, 0) {
			t.Errorf("%s is retried after the last attempt", f)
		}
	}
	for status, want := range map[int32]bool{
		0: false, 201: false, 204: false, 301: false,
		400: false, 401: false, 403: false, 404: false, 410: false,
		408: true, 425: true, 429: true,
		500: true, 502: true, 503: true, 504: true, 520: true, 599: true,
		501: false, 505: false, 600: false, -1: false,
	} {
		expectRetries(t, &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: status}, want)
	}
	for detail, want := range map[v1.FailureDetail]bool{
		v1.FailureDetail_FAILURE_DETAIL_CUT_OFF: true, v1.FailureDetail_FAILURE_DETAIL_COSTLY: true,
		v1.FailureDetail_FAILURE_DETAIL_NOT_HTTP: false, v1.FailureDetail_FAILURE_DETAIL_NOT_JSON: false,
		v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE: false, v1.FailureDetail_FAILURE_DETAIL_NOT_CERTIFICATES: false,
	} {
		f := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, Detail: detail, StatusCode: 503}
		expectRetries(t, f, want)
	}
	expectRetries(t, &v1.Failure{ // a server without TLS
		Class: v1.FailureClass_FAILURE_CLASS_TLS_FAILED, Detail: v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP,
	}, false)
}

func expectRetries(t *testing.T, f *v1.Failure, want bool) {
	t.Helper()
	if got := pipeline.Retries(f, 1, 3); got != want {
		t.Errorf("Retries(%s) = %t", f, got)
	}
}
