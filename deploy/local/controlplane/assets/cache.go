package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// built and fetched are the folders of programs that were built from source or fetched from an archive.
func (o Options) built() string   { return filepath.Join(o.Cache, versionHash()) }
func (o Options) fetched() string { return o.built() + "-envtest" }

// find returns the programs if the cache has them.
func (o Options) find() (found Binaries, err error) {
	if found, err = binariesIn(o.built()); err != nil && !o.Build {
		found, err = binariesIn(o.fetched())
	}
	return found, err
}

// fill downloads or builds the programs, after waiting for other processes that do the same.
func (o Options) fill(ctx context.Context) (Binaries, error) {
	if found, err := o.find(); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("create the cache of the control plane: %w", err)
	}
	lock, err := o.lock(ctx)
	if err != nil {
		return Binaries{}, err
	}
	defer lock.Unlock()
	if found, err := o.find(); err == nil {
		return found, nil
	}
	if !o.Build {
		if err = provide(o.fetched(), func(scratch string) error { return o.fetch(ctx, scratch) }); err != nil {
			o.Part.Note("control plane: no archive of envtest, building from source: %s", err)
		}
	}
	if o.Build || err != nil {
		if err := provide(o.built(), func(scratch string) error { return o.build(ctx, scratch) }); err != nil {
			return Binaries{}, err
		}
	}
	o.Part.Display("control plane: stored in %s", o.Cache)
	return o.find()
}

// lock polls, because a blocking flock cannot be cancelled.
func (o Options) lock(ctx context.Context) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(o.Cache, "lock"))
	if locked, err := lock.TryLock(); locked || err != nil {
		return lock, err
	}
	o.Part.Display("waiting for another process that builds the control plane")
	if _, err := lock.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return nil, fmt.Errorf("wait for another build of the control plane: %w", err)
	}
	return lock, nil
}

// provide fills a folder next to target and then renames it, so that an interrupted process never leaves an
// incomplete target.
func provide(target string, fill func(scratch string) error) error {
	scratch := target + ".new"
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("remove an interrupted build: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return fmt.Errorf("create the cache of the control plane: %w", err)
	}
	if err := fill(scratch); err != nil {
		return err
	}
	if _, err := binariesIn(scratch); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(target), os.Rename(scratch, target)); err != nil {
		return fmt.Errorf("move the control plane into the cache: %w", err)
	}
	return nil
}
