package apply

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// mergePatch is a JSON merge patch (RFC 7386): null removes a member.
type mergePatch struct {
	Metadata   patchMetadata      `json:"metadata"`
	Data       map[string]*string `json:"data,omitempty"`
	BinaryData map[string][]byte  `json:"binaryData,omitempty"`
}

type patchMetadata struct {
	UID             types.UID          `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

// encode returns the patch that carries out a plan on the object that was
// judged, and on no other version of it.
func encode(o *judge.Object, p judge.Plan) ([]byte, error) {
	patch := mergePatch{Metadata: patchMetadata{UID: o.UID, ResourceVersion: o.ResourceVersion}}
	if p.SetStatus {
		patch.Metadata.Annotations = map[string]*string{annotation.StatusKey: nil}
		if p.Status != "" {
			patch.Metadata.Annotations[annotation.StatusKey] = &p.Status
		}
	}
	if len(p.Values) > 0 {
		patch.Data = make(map[string]*string, len(p.Values))
		patch.BinaryData = make(map[string][]byte, len(p.Values))
	}
	for key, value := range p.Values {
		// A key may be in one of the maps only.
		patch.Data[key], patch.BinaryData[key] = nil, nil
		switch {
		case value == nil:
		case value.Binary:
			patch.BinaryData[key] = value.Body
		default:
			text := string(value.Body)
			patch.Data[key] = &text
		}
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // would make markup up to six times as long
	if err := encoder.Encode(patch); err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body.Bytes(), nil
}
