package failure_test

import (
	"regexp"
	"testing"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

func TestReasons(t *testing.T) {
	t.Parallel()
	camelCase := regexp.MustCompile(`^([A-Z][a-z]+|[A-Z]{2,}[A-Z][a-z]+)+$`)
	seen := map[string]v1.FailureClass{}
	for n, name := range v1.FailureClass_name {
		class := v1.FailureClass(n)
		reason := failure.Reason(class)
		if !camelCase.MatchString(reason) {
			t.Errorf("%s has the reason %q, which is not CamelCase", name, reason)
		}
		if other, ok := seen[reason]; ok {
			t.Errorf("%s and %s share the reason %q", name, other, reason)
		}
		seen[reason] = class
		if got := failure.ClassOf(reason); got != class {
			t.Errorf("ClassOf(%q) = %s, want %s", reason, got, name)
		}
	}
	if got := failure.Reason(99); got != "Unknown" {
		t.Errorf("Reason(99) = %q: a newer version's class must have a reason", got)
	}
	for _, unknown := range []string{"", "timeout", "Nonsense", "Unknown"} {
		if got := failure.ClassOf(unknown); got != failure.Unspecified {
			t.Errorf("ClassOf(%q) = %s", unknown, got)
		}
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	retried := map[v1.FailureClass]bool{
		failure.DNSFailed:         true,
		failure.ConnectFailed:     true,
		failure.TLSFailed:         true,
		failure.Timeout:           true,
		failure.CredentialsFailed: true,
	}
	for n := range v1.FailureClass_name {
		f := &v1.Failure{Class: v1.FailureClass(n)}
		expectRetries(t, f, retried[f.GetClass()])
		if f.StatusCode = 503; failure.Retries(f, 3, 3) || failure.Retries(f, 0, 0) {
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
		expectRetries(t, &v1.Failure{Class: failure.BadStatus, StatusCode: status}, want)
	}
	for detail, want := range map[v1.FailureDetail]bool{
		failure.CutOff: true, failure.Costly: true,
		failure.NotHTTP: false, failure.NotJSON: false,
		failure.Inapplicable: false, failure.NotCertificates: false,
	} {
		f := &v1.Failure{Class: failure.ContentRejected, Detail: detail, StatusCode: 503}
		expectRetries(t, f, want)
	}
	expectRetries(t, &v1.Failure{ // a server without TLS
		Class: failure.TLSFailed, Detail: failure.PlainHTTP,
	}, false)
}

func expectRetries(t *testing.T, f *v1.Failure, want bool) {
	t.Helper()
	if got := failure.Retries(f, 1, 3); got != want {
		t.Errorf("Retries(%s) = %t", f, got)
	}
}
