package apply

import (
	"encoding/json"
	"testing"

	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

func TestEncode(t *testing.T) {
	object := &judge.Object{UID: "u", ResourceVersion: "7"}
	for name, tt := range map[string]struct {
		plan judge.Plan
		want string
	}{
		"text":            {judge.Plan{Values: map[string]*judge.Value{"k": {Body: []byte("a\"<\x00\u2028")}}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":"a\"<\u0000\u2028"},"binaryData":{"k":null}}`},
		"nothing":         {judge.Plan{Values: map[string]*judge.Value{"k": {}}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":""},"binaryData":{"k":null}}`},
		"binary":          {judge.Plan{Values: map[string]*judge.Value{"k": {Body: []byte{0xff}, Binary: true}}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":null},"binaryData":{"k":"/w=="}}`},
		"removal":         {judge.Plan{Values: map[string]*judge.Value{"k": nil}}, `{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"k":null},"binaryData":{"k":null}}`},
		"status":          {judge.Plan{SetStatus: true, Status: `{"k":{}}`}, `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"x-kv8s.io/curl-status":"{\"k\":{}}"}}}`},
		"status, removed": {judge.Plan{SetStatus: true}, `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"x-kv8s.io/curl-status":null}}}`},
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
