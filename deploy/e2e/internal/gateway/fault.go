package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer responds with a status, as an overloaded or broken API server does. retryAfter
// is in seconds. With 0 there is no such header.
func Answer(code, retryAfter int) Fault {
	return func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		reason := metav1.StatusReasonInternalError
		switch code {
		case http.StatusTooManyRequests:
			reason = metav1.StatusReasonTooManyRequests
		case http.StatusServiceUnavailable:
			reason = metav1.StatusReasonServiceUnavailable
		case http.StatusGone:
			reason = metav1.StatusReasonExpired
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: http.StatusText(code),
		})
	}
}

// LoseAnswer forwards a request and breaks the connection before the response.
func LoseAnswer(pass http.Handler, _ http.ResponseWriter, r *http.Request) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// WithholdAnswer forwards a request and never responds.
func WithholdAnswer(pass http.Handler, _ http.ResponseWriter, r *http.Request) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Silence never answers, as a network that drops packets.
func Silence(_ http.Handler, _ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// All applies a fault to every request.
func All(f Fault) Rule { return func(*http.Request) Fault { return f } }

// Method applies a fault to requests with that method.
func Method(method string, f Fault) Rule {
	return func(r *http.Request) Fault {
		if r.Method == method {
			return f
		}
		return nil
	}
}
