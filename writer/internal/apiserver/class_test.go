package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func refusal(code int32, message string, causes ...metav1.StatusCause) metav1.Status {
	return metav1.Status{Code: code, Message: message, Details: &metav1.StatusDetails{Causes: causes}}
}

// The messages and causes come from kube-apiserver 1.36.
func TestClassify(t *testing.T) {
	const (
		immutable = "Invalid value: \"other\": field is immutable"
		webhook   = `admission webhook "x.example.com" denied the request: no`
		policy    = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false"
	)
	cause := func(kind field.ErrorType, name, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseType(kind), Field: name, Message: message}
	}
	forbidden := func(verb string) metav1.Status {
		return refusal(403,
			`configmaps "b" is forbidden: User "nobody" cannot `+verb+` resource "configmaps" in API group ""`)
	}
	for name, tt := range map[string]struct {
		status metav1.Status
		want   Class
	}{
		"stale version": {refusal(409, "the object has been modified"), Conflict},
		"other uid":     {refusal(422, "", cause(field.ErrorTypeInvalid, "metadata.uid", immutable)), Conflict},
		"missing":       {refusal(404, `configmaps "b" not found`), Gone},
		"terminating":   {refusal(403, "", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}), Gone},
		"immutable": {
			refusal(422, "", cause(field.ErrorTypeForbidden, "data", "field is immutable when `immutable` is set")),
			Immutable,
		},
		"too large":          {refusal(422, "", cause(field.ErrorTypeTooLong, "[]", "")), TooLarge},
		"large request":      {refusal(413, "Request entity too large: limit is 3145728"), ObjectTooLarge},
		"too large for etcd": {refusal(500, "etcdserver: request is too large"), ObjectTooLarge},
		"too large to send": {
			refusal(500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (1 vs. 2)"),
			ObjectTooLarge,
		},
		"large annotations": {
			refusal(422, "", cause(field.ErrorTypeTooLong, "metadata.annotations", "")),
			StatusTooLarge,
		},
		"no permission":     {forbidden("patch"), Forbidden},
		"no permission get": {forbidden("get"), Forbidden},
		"no credentials":    {refusal(401, "Unauthorized"), Forbidden},
		"webhook":           {refusal(403, webhook), Rejected},
		"webhook with 409":  {refusal(409, webhook), Rejected},
		"webhook with 404":  {refusal(404, webhook), Rejected},
		"broken webhook":    {refusal(500, `failed calling webhook "x": connection refused`), Rejected},
		"policy":            {refusal(422, `configmaps "a" is forbidden: `+policy, cause("", "", policy)), Rejected},
		"plugin":            {refusal(403, `configmaps "a" is forbidden: exceeded quota: q`), Rejected},
		"other field":       {refusal(422, "", cause(field.ErrorTypeInvalid, "metadata.name", immutable)), Rejected},
		"bad request":       {refusal(400, "…"), Rejected},
		"throttled":         {refusal(429, "…"), Unavailable},
		"unavailable":       {refusal(503, "…"), Unavailable},
		"broken":            {refusal(500, "…"), Failed},
		"timeout":           {refusal(504, "…"), Failed},
	} {
		err := fmt.Errorf("patch: %w", &apierrors.StatusError{ErrStatus: tt.status})
		NewWithT(t).Expect(Classify(err)).To(Equal(tt.want), name)
	}
}

func TestClassifyWithoutStatus(t *testing.T) {
	byProxy := func(code int, body string) error {
		return apierrors.NewGenericServerResponse(code, "PATCH", schema.GroupResource{Resource: "configmaps"}, "a", body, 0,
			true)
	}
	for name, tt := range map[string]struct {
		err  error
		want Class
	}{
		"none":           {nil, OK},
		"refused":        {errors.New("connection refused"), Unavailable},
		"deadline":       {context.DeadlineExceeded, Failed},
		"404 by a proxy": {byProxy(http.StatusNotFound, "404 page not found"), Unavailable},
		"403 by a proxy": {byProxy(http.StatusForbidden, "<html>"), Forbidden},
		"502 by a proxy": {byProxy(http.StatusBadGateway, "<html>"), Failed},
	} {
		NewWithT(t).Expect(Classify(tt.err)).To(Equal(tt.want), name)
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]struct {
		after   time.Duration
		present bool
	}{
		"0": {0, true}, "7": {7 * time.Second, true}, "3600": {maxRetryAfter, true},
		"": {0, false}, "-1": {0, false}, "soon": {0, false}, "99999999999999999999": {0, false},
		"Wed, 21 Oct 2026 07:28:00 GMT": {0, false},
	} {
		after, present := delaySeconds(header)
		if min(after, maxRetryAfter) != want.after && present || present != want.present {
			t.Errorf("Retry-After %q: %v, %v", header, after, present)
		}
	}
}
