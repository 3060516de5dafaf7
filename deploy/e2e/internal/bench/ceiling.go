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
// do. The answers are not even decoded. When, before or after the pipeline, names the
// profiles of it.
func (b *bench) ceiling(ctx context.Context, when string) (c Ceiling, err error) {
	objects, _, err := b.bare.ConfigMaps(ctx)
	if err != nil {
		return c, err
	}
	// A new value each time, since a patch without effect is not stored.
	value := strconv.FormatInt(time.Now().UnixNano(), 10) + strings.Repeat("y", b.config.Size)
	value = value[:b.config.Size]
	patches := make([][]byte, len(objects))
	for i := range objects {
		if patches[i], err = barePatch(&objects[i], value); err != nil {
			return c, err
		}
	}
	before, err := b.snapshot(ctx)
	if err != nil {
		return c, err
	}
	client, profiles := b.cluster.Kubernetes.CoreV1().RESTClient(), b.profileBare(ctx, when)
	began := time.Now()
	err = cluster.InParallel(ctx, len(objects), func(ctx context.Context, i int) error {
		return client.Patch(types.StrategicMergePatchType).Namespace(b.bare.Name).
			Resource("configmaps").Name(objects[i].Name).Body(patches[i]).Do(ctx).Error()
	})
	if err != nil {
		return c, fmt.Errorf("patch a ConfigMap: %w", err)
	}
	c.PerSecond = rate(len(objects), time.Since(began))
	after, err := b.snapshot(ctx)
	if err != nil {
		return c, err
	}
	c.Cost = before.cost(after, len(objects))
	b.progress("bare patches, %d in flight: %.0f/s", cluster.InFlight, c.PerSecond)
	return c, profiles()
}

func barePatch(object *corev1.ConfigMap, value string) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.ResourceVersion},
		"data":     map[string]string{dataKey: value},
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}

func rate(count int, took time.Duration) float64 { return float64(count) / took.Seconds() }
