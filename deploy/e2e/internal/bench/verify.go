package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// filled reports, by the metadata, whether a ConfigMap holds its body: the status
// is written with the body in one patch.
func (b *bench) filled(object *metav1.PartialObjectMetadata) bool {
	s, err := status.Parse(object.Annotations[annotation.StatusKey])
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(b.body(object.Name)))
	return s.Keys[dataKey].SHA256 == hex.EncodeToString(sum[:])
}

// verify reads the ConfigMaps of a kind and compares all that they hold.
func (b *bench) verify(ctx context.Context, kind string, count int) error {
	objects, _, err := b.piped.ConfigMaps(ctx)
	if err != nil {
		return err
	}
	seen := 0
	for i := range objects {
		object := &objects[i]
		if !strings.HasPrefix(object.Name, kind+"-") {
			continue
		}
		seen++
		want := b.body(object.Name)
		if object.Data[dataKey] != want {
			return fmt.Errorf("%w: ConfigMap %s does not hold the body of its URL", errWrong, object.Name)
		}
		if len(object.Data) != 2 || len(object.BinaryData) != 0 || object.Data[theirKey] != theirs(theirSize) {
			return fmt.Errorf("%w: in ConfigMap %s more than one key was changed", errWrong, object.Name)
		}
	}
	if seen != count {
		return fmt.Errorf("%w: %d of %d ConfigMaps are there", errWrong, seen, count)
	}
	return nil
}
