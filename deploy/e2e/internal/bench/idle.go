package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// pause lets the system come to rest between two annotations.
const pause = 50 * time.Millisecond

// idle annotates ConfigMaps one after another and measures how long each waits
// for its data.
func (b *bench) idle(ctx context.Context) error {
	if b.config.Idle == 0 {
		return nil
	}
	if err := b.piped.Fill(ctx, b.config.Idle, plain("idle", theirSize)); err != nil {
		return err
	}
	b.progress("annotating %d ConfigMaps, one after another", b.config.Idle)
	before, err := b.snapshot(ctx)
	if err != nil {
		return err
	}
	var total, above, toGet, toFill []time.Duration
	step := b.step(b.config.Idle)
	for i := range b.config.Idle {
		if err := system.Pause(ctx, pause); err != nil {
			return err
		}
		responded, filled, err := b.annotate(ctx, name("idle", i))
		if err != nil {
			return err
		}
		get := b.meter.response(b.path(name("idle", i)))
		total = append(total, filled.Sub(responded))
		above = append(above, filled.Sub(responded)-get.took)
		toGet = append(toGet, get.began.Sub(responded))
		toFill = append(toFill, filled.Sub(get.began.Add(get.took)))
		step()
	}
	after, err := b.snapshot(ctx)
	if err != nil {
		return err
	}
	b.report.Idle = &Idle{
		ConfigMaps: b.config.Idle,
		Total:      quantiles(total), AboveServer: quantiles(above), ToGet: quantiles(toGet), ToFill: quantiles(toFill),
		Cost: before.cost(after, b.config.Idle),
	}
	return b.verify(ctx, "idle", b.config.Idle)
}

// annotate annotates one ConfigMap, and returns when the API server had
// responded to that and when the watch had the data.
func (b *bench) annotate(ctx context.Context, name string) (responded, filled time.Time, err error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation.DefaultKey: b.wish(name)}},
	})
	if err != nil {
		return responded, filled, fmt.Errorf("encode patch: %w", err)
	}
	_, err = b.cluster.Kubernetes.CoreV1().ConfigMaps(b.piped.Name).
		Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	responded = time.Now()
	if err != nil {
		return responded, filled, fmt.Errorf("annotate a ConfigMap: %w", err)
	}
	filled, err = b.awaitOne(ctx, name)
	return responded, filled, err
}

// quantiles sorts the times and picks from them.
func quantiles(times []time.Duration) Quantiles {
	slices.Sort(times)
	at := func(part float64) float64 { return usage.Milliseconds(times[int(part*float64(len(times)-1))]) }
	return Quantiles{P50: at(0.50), P90: at(0.90), P99: at(0.99), Max: at(1)}
}
