package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The bodies come from kube-apiserver 1.36.
func TestClassify(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		want Outcome
	}{
		"stale version":     {`{"status":"Failure","message":"Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","kind":"configmaps"},"code":409}`, Conflict},
		"other uid":         {`{"status":"Failure","message":"ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable","reason":"Invalid","details":{"causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"other\": field is immutable","field":"metadata.uid"}]},"code":422}`, Conflict},
		"missing":           {`{"status":"Failure","message":"configmaps \"b\" not found","reason":"NotFound","details":{"name":"b","kind":"configmaps"},"code":404}`, Gone},
		"terminating":       {`{"status":"Failure","message":"configmaps \"b\" is forbidden: unable to create new content in namespace x because it is being terminated","reason":"Forbidden","details":{"causes":[{"reason":"NamespaceTerminating"}]},"code":403}`, Gone},
		"immutable":         {"{\"status\":\"Failure\",\"message\":\"ConfigMap \\\"a\\\" is invalid: data: Forbidden: field is immutable when `immutable` is set\",\"reason\":\"Invalid\",\"details\":{\"causes\":[{\"reason\":\"FieldValueForbidden\",\"message\":\"Forbidden: field is immutable when `immutable` is set\",\"field\":\"data\"}]},\"code\":422}", Immutable},
		"too large":         {`{"status":"Failure","message":"ConfigMap \"b\" is invalid: []: Too long: may not be more than 1048576 bytes","reason":"Invalid","details":{"causes":[{"reason":"FieldValueTooLong","message":"Too long: may not be more than 1048576 bytes","field":"[]"}]},"code":422}`, TooLarge},
		"large request":     {`{"status":"Failure","message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}`, TooLarge},
		"large for etcd":    {`{"status":"Failure","message":"etcdserver: request is too large","code":500}`, TooLarge},
		"large annotations": {`{"status":"Failure","message":"…","reason":"Invalid","details":{"causes":[{"reason":"FieldValueTooLong","message":"Too long: may not be more than 262144 bytes","field":"metadata.annotations"}]},"code":422}`, StatusTooLarge},
		"no permission":     {`{"status":"Failure","message":"configmaps \"b\" is forbidden: User \"nobody\" cannot patch resource \"configmaps\" in API group \"\" in the namespace \"errs\"","reason":"Forbidden","details":{"name":"b","kind":"configmaps"},"code":403}`, Forbidden},
		"no permission get": {`{"status":"Failure","message":"configmaps \"b\" is forbidden: User \"nobody\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"errs\"","reason":"Forbidden","code":403}`, Forbidden},
		"no credentials":    {`{"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`, Forbidden},
		"webhook":           {`{"status":"Failure","message":"admission webhook \"x.example.com\" denied the request: no","code":403}`, Rejected},
		"webhook with 409":  {`{"status":"Failure","message":"admission webhook \"x.example.com\" denied the request: no","reason":"Conflict","code":409}`, Rejected},
		"webhook with 404":  {`{"status":"Failure","message":"admission webhook \"x.example.com\" denied the request: no","reason":"NotFound","code":404}`, Rejected},
		"broken webhook":    {`{"status":"Failure","message":"Internal error occurred: failed calling webhook \"x\": connection refused","reason":"InternalError","code":500}`, Rejected},
		"policy":            {`{"status":"Failure","message":"configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false","reason":"Invalid","details":{"causes":[{"message":"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false"}]},"code":422}`, Rejected},
		"plugin":            {`{"status":"Failure","message":"configmaps \"a\" is forbidden: exceeded quota: q","reason":"Forbidden","code":403}`, Rejected},
		"other field":       {`{"status":"Failure","message":"…","reason":"Invalid","details":{"causes":[{"reason":"FieldValueInvalid","message":"field is immutable","field":"metadata.finalizers"}]},"code":422}`, Rejected},
		"bad request":       {`{"status":"Failure","message":"…","reason":"BadRequest","code":400}`, Rejected},
		"throttled":         {`{"status":"Failure","message":"…","reason":"TooManyRequests","code":429}`, Unavailable},
		"broken":            {`{"status":"Failure","message":"…","reason":"InternalError","code":500}`, Unavailable},
		"timeout":           {`{"status":"Failure","message":"…","reason":"Timeout","code":504}`, Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var s metav1.Status
			if err := json.Unmarshal([]byte(tt.body), &s); err != nil {
				t.Fatal(err)
			}
			if got := Classify(fmt.Errorf("patch: %w", &apierrors.StatusError{ErrStatus: s})); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestClassifyWithoutStatus(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for name, tt := range map[string]struct {
		err  error
		want Outcome
	}{
		"none":           {nil, OK},
		"refused":        {errors.New("connection refused"), Unavailable},
		"deadline":       {context.DeadlineExceeded, Unavailable},
		"busy":           {&busyError{code: 429, after: time.Second}, Unavailable},
		"404 by a proxy": {apierrors.NewGenericServerResponse(http.StatusNotFound, "PATCH", configMaps, "a", "404 page not found", 0, true), Unavailable},
		"403 by a proxy": {apierrors.NewGenericServerResponse(http.StatusForbidden, "PATCH", configMaps, "a", "<html>", 0, true), Forbidden},
		"502 by a proxy": {apierrors.NewGenericServerResponse(http.StatusBadGateway, "PATCH", configMaps, "a", "<html>", 0, true), Unavailable},
	} {
		if got := Classify(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]struct {
		after time.Duration
		asked bool
	}{
		"0": {0, true}, "7": {7 * time.Second, true}, "3600": {maxRetryAfter, true},
		"": {0, false}, "-1": {0, false}, "soon": {0, false}, "99999999999999999999": {0, false},
		"Wed, 21 Oct 2026 07:28:00 GMT": {0, false},
	} {
		after, asked := delaySeconds(header)
		if min(after, maxRetryAfter) != want.after && asked || asked != want.asked {
			t.Errorf("Retry-After %q: %v, %v", header, after, asked)
		}
	}
}
