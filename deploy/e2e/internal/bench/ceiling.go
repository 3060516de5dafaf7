package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
)

// ceiling measures how many patches of the size of a body the API server takes,
// each with the resource version of its object, when there is nothing else to
// do. The answers are not even decoded.
func (b *bench) ceiling(ctx context.Context, perSecond *float64) error {
	objects, _, err := b.bare.ConfigMaps(ctx)
	if err != nil {
		return err
	}
	// The content is a new one each time, since a patch without effect is not
	// stored.
	value := strconv.FormatInt(time.Now().UnixNano(), 10) + strings.Repeat("y", b.config.Size)
	value = value[:b.config.Size]
	patches := make([][]byte, len(objects))
	for i := range objects {
		if patches[i], err = barePatch(&objects[i], value); err != nil {
			return err
		}
	}
	client := b.cluster.Kubernetes.CoreV1().RESTClient()
	before, err := b.cluster.Read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	err = cluster.InParallel(ctx, len(objects), func(ctx context.Context, i int) error {
		return client.Patch(types.StrategicMergePatchType).Namespace(b.bare.Name).
			Resource("configmaps").Name(objects[i].Name).Body(patches[i]).Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("patch a ConfigMap: %w", err)
	}
	*perSecond = rate(len(objects), time.Since(began))
	after, err := b.cluster.Read(ctx)
	if err != nil {
		return err
	}
	b.report.Ceiling.CPUPerPatch += milliseconds(after.Since(before).CPU) / float64(len(objects)) / 2 // of two times
	b.say("bare patches, %d in flight: %.0f/s", cluster.InFlight, *perSecond)
	return nil
}

func barePatch(object *corev1.ConfigMap, value string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.ResourceVersion},
		"data":     map[string]string{dataKey: value},
	})
}

func rate(count int, took time.Duration) float64 { return float64(count) / took.Seconds() }
