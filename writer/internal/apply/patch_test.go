package apply

import (
	"encoding/json"
	"testing"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

func TestEncode(t *testing.T) {
	object := &plan.Object{UID: "u", ResourceVersion: "7"}
	for name, tt := range map[string]struct {
		plan plan.Plan
		want string
	}{
		"text":            {plan.Plan{Values: map[string]*plan.Value{"k": {Body: []byte("a\"<\x00\u2028")}}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":"a\"<\u0000\u2028"},"binaryData":{"k":null}}`},
		"nothing":         {plan.Plan{Values: map[string]*plan.Value{"k": {}}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":""},"binaryData":{"k":null}}`},
		"binary":          {plan.Plan{Values: map[string]*plan.Value{"k": {Body: []byte{0xff}, Binary: true}}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":null},"binaryData":{"k":"/w=="}}`},
		"removal":         {plan.Plan{Values: map[string]*plan.Value{"k": nil}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":null},"binaryData":{"k":null}}`},
		"status":          {plan.Plan{SetStatus: true, Status: `{"k":{}}`}, `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"x-kv8s.io/curl-status":"{\"k\":{}}"}}}`},
		"status, removed": {plan.Plan{SetStatus: true}, `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"x-kv8s.io/curl-status":null}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := encode(object, tt.plan)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(want)
			if string(g) != string(w) {
				t.Errorf("patch %s, want %s", g, w)
			}
		})
	}
}
