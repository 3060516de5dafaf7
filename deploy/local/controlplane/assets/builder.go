package assets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
)

// Builder builds the binaries from source, once per version, into a folder of
// its own below Dir. Several processes may share Dir.
type Builder struct {
	Dir string
	// Progress receives what is done and how far it is; nil keeps it silent.
	Progress io.Writer
}

// Build returns the binaries and builds them first when they are missing. While
// another process builds them it waits and reports that. A build that is interrupted
// leaves nothing that a later one would take for complete.
func (b Builder) Build(ctx context.Context) (Binaries, error) {
	target := filepath.Join(b.Dir, versionHash())
	if found, err := In(target); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("create the cache of the control plane: %w", err)
	}
	report := newProgress(b.Progress, clock.RealClock{})
	defer report.close()
	lock, err := b.lock(ctx, target+".lock", report)
	if err != nil {
		return Binaries{}, err
	}
	defer lock.Unlock()
	if found, err := In(target); err == nil {
		return found, nil
	}
	if err := b.build(ctx, target, report); err != nil {
		return Binaries{}, err
	}
	report.state("built %s, %s and %s in %s", etcd, apiServer, kubectl, target)
	return In(target)
}

// lock polls, because a blocking flock cannot be cancelled.
func (b Builder) lock(ctx context.Context, path string, report *progress) (*filelock.Lock, error) {
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		lock, err := filelock.Try(path)
		if !errors.Is(err, filelock.ErrLocked) {
			return lock, err
		}
		report.state("waiting for another process that builds the control plane")
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build of the control plane: %w", context.Cause(ctx))
		}
	}
}

func (b Builder) build(ctx context.Context, target string, report *progress) error {
	scratch := target + ".building"
	// What is left of an interrupted build is not worth keeping: the Go build
	// cache has it all.
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("remove the rest of an earlier build: %w", err)
	}
	defer os.RemoveAll(scratch)
	module, bin := filepath.Join(scratch, "module"), filepath.Join(scratch, "bin")
	if err := writeModule(module); err != nil {
		return fmt.Errorf("write the module to build: %w", err)
	}
	golang, err := findToolchain(module)
	if err != nil {
		return err
	}
	if err := compile(ctx, golang, bin, report); err != nil {
		return err
	}
	// etcd's main package is called server.
	if err := os.Rename(filepath.Join(bin, "server"), filepath.Join(bin, etcd)); err != nil {
		return fmt.Errorf("name etcd: %w", err)
	}
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("remove an incomplete control plane: %w", err)
	}
	if err := os.Rename(bin, target); err != nil {
		return fmt.Errorf("put the control plane into the cache: %w", err)
	}
	return nil
}
