package bench

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
)

const (
	// foreignSize is the size of a ConfigMap that is not ours, in bytes.
	foreignSize = 4 << 10
	// calmAfter is how long after its start the watcher is looked at, beside its
	// peak: the runtime of Go returns memory in the background.
	calmAfter = 10 * time.Second
)

// memory reads what the programs have used so far.
func (b *bench) memory(context.Context) (err error) {
	b.report.Memory, err = b.usage()
	delete(b.report.Memory, "bench")
	return err
}

// company measures the memory of a watcher that is started among many
// ConfigMaps that are not ours.
func (b *bench) company(ctx context.Context) error {
	if b.config.Foreign == 0 {
		return nil
	}
	if err := b.system.StopWatcher(ctx); err != nil {
		return err
	}
	foreign, err := b.newNamespace(ctx)
	if err != nil {
		return err
	}
	b.progress("creating %d ConfigMaps of %d bytes that are not ours", b.config.Foreign, foreignSize)
	step, object := b.step(b.config.Foreign), plain("foreign", foreignSize)
	err = foreign.Fill(ctx, b.config.Foreign, func(i int) *corev1.ConfigMap {
		step()
		return object(i)
	})
	if err != nil {
		return err
	}
	b.progress("starting the watcher among them")
	began := time.Now()
	if err := b.system.StartWatcher(ctx, foreign.Name); err != nil {
		return err
	}
	if err := b.system.AwaitWatcher(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if err := system.Pause(ctx, calmAfter); err != nil {
		return err
	}
	used, err := b.usage()
	if err != nil {
		return err
	}
	b.report.Foreign = &Foreign{
		ConfigMaps: b.config.Foreign, Bytes: foreignSize, ReadySeconds: ready.Seconds(), Watcher: used["watcher"],
	}
	return nil
}
