package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxCompared is the size in bytes up to which the values of a plan are compared with what the API server stored. To
// compare, it must return the whole object. Together with larger bodies that is too much for the memory of a small pod.
const maxCompared = 256 << 10

// patch sends a plan and caches the resulting metadata.
func (t *task) patch(ctx context.Context, p plan.Plan) error {
	whole := compares(p)
	written, err := t.send(ctx, p, whole)
	if err == nil {
		metadata := written.ObjectMeta // without the values
		if t.objects.Drop(t.ref); metadata.Size() <= maxCached {
			t.objects.Put(t.ref, &metadata)
		}
		if p.SetStatus && written.Annotations[annotation.StatusKey] != p.Status {
			err = apiserver.ErrStripped
		} else if whole {
			err = t.compare(p, written, &metadata)
		}
	}
	t.deps.Metrics.patches.WithLabelValues(string(apiserver.Classify(err))).Inc()
	return err
}

// compares reports whether the values of a plan are compared with those of the resulting object.
func compares(p plan.Plan) bool {
	for _, value := range p.Values {
		if value != nil {
			return p.Bytes() <= maxCompared
		}
	}
	return false
}

// compare returns an error if keys do not have the value of the plan, although the metadata say that we wrote it, and
// remembers them.
func (t *task) compare(p plan.Plan, written *corev1.ConfigMap, metadata *metav1.ObjectMeta) error {
	former, found := t.object.Status.Keys, false
	for key, value := range p.Values {
		body, exists := written.BinaryData[key]
		if text, ok := written.Data[key]; ok {
			body, exists = []byte(text), true
		}
		if value == nil || exists && bytes.Equal(body, value.Body) {
			continue
		}
		if !found {
			t.object, found = t.deps.Decoder.Decode(metadata, plan.FromPatch), true
		}
		altered := plan.AlteredKey{Wrote: t.object.Status.Keys[key], Holds: former[key]}
		if altered.Holds.SHA256 = ""; exists {
			altered.Holds.SHA256 = pipeline.Digest(body)
		}
		altered.Holds.UIDMark, altered.Holds.Annotation = altered.Wrote.UIDMark, altered.Wrote.Annotation
		t.memory.Altered[key] = altered
	}
	if found {
		return apiserver.ErrAltered
	}
	return nil
}

func (t *task) send(ctx context.Context, p plan.Plan, whole bool) (*corev1.ConfigMap, error) {
	if beginsRecord(t.object, p) {
		body, err := encodeApply(t.ref, t.object, p)
		if err != nil {
			return nil, err
		}
		return t.deps.Client.Apply(ctx, t.ref, body, whole)
	}
	body, err := encode(t.object, p)
	if err != nil {
		return nil, err
	}
	return t.deps.Client.Patch(ctx, t.ref, body, whole)
}

// strategicPatch is a strategic merge patch of plain maps, in which null removes a member. A key
// such as $patch would be a directive that empties the whole map. The inbox rejects such keys.
type strategicPatch struct {
	Metadata   patchMetadata      `json:"metadata"`
	Data       map[string]*string `json:"data,omitempty"`
	BinaryData map[string][]byte  `json:"binaryData,omitempty"`
}

type patchMetadata struct {
	UID             types.UID          `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

// encode returns the patch for the planned version of the object.
func encode(o *plan.Object, p plan.Plan) ([]byte, error) {
	patch := strategicPatch{Metadata: patchMetadata{UID: o.UID, ResourceVersion: o.ResourceVersion}}
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
		// A key must not be in both maps.
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
	return marshal(patch)
}

// beginsRecord reports whether the plan is sent as a server-side apply, so that the API server starts
// managedFields and metadata shows later changes of the keys. We use an apply only to add keys.
func beginsRecord(o *plan.Object, p plan.Plan) bool {
	if !o.Unrecorded() || o.Values == nil || len(p.Values) == 0 || p.Status == "" {
		return false
	}
	for key, value := range p.Values {
		if _, exists := o.Values[key]; exists || value == nil {
			return false
		}
	}
	return true
}

// encodeApply returns the plan as a server-side apply (KEP-555) with all fields that we want to
// own. With uid and resourceVersion it neither creates nor overwrites an object.
func encodeApply(ref types.NamespacedName, o *plan.Object, p plan.Plan) ([]byte, error) {
	patch := corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: ref.Name, Namespace: ref.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion,
			Annotations: map[string]string{annotation.StatusKey: p.Status},
		},
		Data:       map[string]string{},
		BinaryData: map[string][]byte{},
	}
	for key, value := range p.Values {
		if value.Binary {
			patch.BinaryData[key] = value.Body
		} else {
			patch.Data[key] = string(value.Body)
		}
	}
	return marshal(patch)
}

func marshal(patch any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // would make markup up to six times as long
	if err := encoder.Encode(patch); err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body.Bytes(), nil
}
