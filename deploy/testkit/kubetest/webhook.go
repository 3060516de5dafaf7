package kubetest

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admission "k8s.io/api/admission/v1"
)

// Webhook serves an admission webhook with TLS until the test ends. It returns its address, and its certificate as
// in clientConfig.caBundle. A nil response allows the request.
func Webhook(
	tb testing.TB, respond func(*admission.AdmissionRequest) *admission.AdmissionResponse,
) (url, bundle string) {
	tb.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admission.AdmissionReview{}
		if json.NewDecoder(r.Body).Decode(review) != nil || review.Request == nil {
			return
		}
		review.Response = respond(review.Request)
		if review.Response == nil {
			review.Response = &admission.AdmissionResponse{Allowed: true}
		}
		review.Response.UID, review.Request = review.Request.UID, nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the client is gone if it fails
	}))
	tb.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.URL, base64.StdEncoding.EncodeToString(certificate)
}
