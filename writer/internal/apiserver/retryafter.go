package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxRetryAfter is the maximum pause that one response can request.
const maxRetryAfter = 30 * time.Second

// retryAfterErrors turns responses with Retry-After (RFC 9110 section 10.2.3) into errors. client-go
// would wait inside the request and occupy its slot, but only the circuit breaker waits for the API
// server.
type retryAfterErrors struct {
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (e retryAfterErrors) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := e.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return response, nil
	}
	after, present := delaySeconds(response.Header.Get("Retry-After"))
	if !present {
		return response, nil
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/") {
		// A Status repeats the pause, and its message says whether an admission webhook refused the request.
		response.Header.Del("Retry-After")
		return response, nil
	}
	_ = response.Body.Close()
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: int32(response.StatusCode), Details: &metav1.StatusDetails{RetryAfterSeconds: int32(after / time.Second)},
		Message: fmt.Sprintf("API server responded %d, asks to come back in %v", response.StatusCode, after),
	}}
}

// delaySeconds parses the only form of Retry-After that API servers use.
func delaySeconds(value string) (time.Duration, bool) {
	seconds, err := strconv.ParseUint(value, 10, 31)
	return time.Duration(seconds) * time.Second, err == nil
}

// WrappedRoundTripper gives client-go access to the wrapped round tripper.
func (e retryAfterErrors) WrappedRoundTripper() http.RoundTripper { return e.next }
