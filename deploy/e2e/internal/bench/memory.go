package bench

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/process"
)

const (
	// foreignSize is the size of a ConfigMap that is not ours, in bytes.
	foreignSize = 4 << 10
	// settle is how long after its start the watcher is looked at, beside its
	// peak: the runtime of Go returns memory in the background.
	settle = 10 * time.Second
)

// memory reads what the programs have used so far.
func (b *bench) memory(context.Context) (err error) {
	b.report.Memory, err = b.usage()
	return err
}

// usage of all programs; empty where the operating system does not tell.
func (b *bench) usage() (map[string]process.Usage, error) {
	usage, err := b.system.Usage()
	if errors.Is(err, process.ErrUnknown) {
		return nil, nil
	}
	return usage, err
}

// company measures the memory of a watcher that is started among many
// ConfigMaps that are not ours.
func (b *bench) company(ctx context.Context) (err error) {
	if b.config.Foreign == 0 {
		return nil
	}
	if err := b.system.StopWatcher(); err != nil {
		return err
	}
	if b.foreign, err = b.cluster.NewNamespace(ctx); err != nil {
		return err
	}
	b.say("creating %d ConfigMaps of %d bytes that are not ours", b.config.Foreign, foreignSize)
	step, foreign := b.step(b.config.Foreign), plain("foreign", foreignSize)
	err = b.foreign.Fill(ctx, b.config.Foreign, func(i int) *corev1.ConfigMap {
		step()
		return foreign(i)
	})
	if err != nil {
		return err
	}
	b.say("starting the watcher among them")
	began := time.Now()
	if err := b.system.StartWatcher(b.foreign.Name); err != nil {
		return err
	}
	if err := b.system.AwaitWatcher(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if err := rest(ctx, settle); err != nil {
		return err
	}
	usage, err := b.usage()
	if err != nil {
		return err
	}
	b.report.Foreign = &Foreign{
		ConfigMaps: b.config.Foreign, Bytes: foreignSize, ReadySeconds: ready.Seconds(), Watcher: usage["watcher"],
	}
	return nil
}
