package controlplane

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
func (o ProgramOptions) built() string   { return filepath.Join(o.Cache, versionHash()) }
func (o ProgramOptions) fetched() string { return o.built() + "-envtest" }

// find returns the programs if the cache has them.
func (o ProgramOptions) find() (found Programs, err error) {
	if found, err = binariesIn(o.built()); err != nil && !o.Build {
		found, err = binariesIn(o.fetched())
	}
	return found, err
}

// fill downloads or builds the programs, after waiting for other processes that do the same.
func (o ProgramOptions) fill(ctx context.Context) (Programs, error) {
	if found, err := o.find(); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(o.Cache, 0o750); err != nil {
		return Programs{}, fmt.Errorf("create the cache of the control plane: %w", err)
	}
	lock, err := o.lock(ctx)
	if err != nil {
		return Programs{}, err
	}
	defer lock.Unlock()
	if found, err := o.find(); err == nil {
		return found, nil
	}
	if !o.Build {
		if err = provide(o.fetched(), func(scratch string) error { return o.fetch(ctx, scratch) }); err != nil {
			o.display.note("control plane: no archive of envtest, building from source: %s", err)
		}
	}
	if o.Build || err != nil {
		if err := provide(o.built(), func(scratch string) error { return o.build(ctx, scratch) }); err != nil {
			return Programs{}, err
		}
	}
	o.display.show("control plane: stored in %s", o.Cache)
	return o.find()
}

// lock polls, because a blocking flock cannot be cancelled.
func (o ProgramOptions) lock(ctx context.Context) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(o.Cache, "lock"))
	if locked, err := lock.TryLock(); locked || err != nil {
		return lock, err
	}
	o.display.show("waiting for another process that builds the control plane")
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
	if err := os.MkdirAll(scratch, 0o750); err != nil {
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
