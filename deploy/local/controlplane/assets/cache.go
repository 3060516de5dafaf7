package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

// Cache has the programs once per version. Several processes may share it.
type Cache struct {
	Dir string
	// Kubectl: kubectl is needed, too.
	Kubectl bool
	// Build uses no archive of envtest.
	Build bool
	// Index is the URL of the list of archives, by default that of setup-envtest.
	Index string
	// Part displays the progress.
	Part *progress.Part
}

// built and fetched are the folders of programs from source and from an archive.
func (c Cache) built() string   { return filepath.Join(c.Dir, versionHash()) }
func (c Cache) fetched() string { return c.built() + "-envtest" }

// find returns the programs if the cache has them.
func (c Cache) find() (found Binaries, err error) {
	if found, err = binariesIn(c.built(), programs(c.Kubectl)...); err != nil && !c.Build {
		found, err = binariesIn(c.fetched(), programs(c.Kubectl)...)
	}
	return found, err
}

// Fill downloads or builds the missing programs. It waits while another process does.
func (c Cache) Fill(ctx context.Context) (Binaries, error) {
	if found, err := c.find(); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("create the cache of the control plane: %w", err)
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return Binaries{}, err
	}
	defer lock.Unlock()
	if found, err := c.find(); err == nil {
		return found, nil
	}
	if !c.Build {
		if err = c.provide(c.fetched(), func(scratch string) error { return c.fetch(ctx, scratch) }); err != nil {
			c.Part.Note("control plane: no archive of envtest, building from source: %s", err)
		}
	}
	if c.Build || err != nil {
		if err := c.provide(c.built(), func(scratch string) error { return c.build(ctx, scratch) }); err != nil {
			return Binaries{}, err
		}
	}
	c.Part.Display("control plane: stored in %s", c.Dir)
	return c.find()
}

// lock polls, because a blocking flock cannot be cancelled.
func (c Cache) lock(ctx context.Context) (*filelock.Lock, error) {
	for {
		lock, err := filelock.Try(filepath.Join(c.Dir, "lock"))
		if !errors.Is(err, filelock.ErrLocked) {
			return lock, err
		}
		c.Part.Display("waiting for another process that builds the control plane")
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build of the control plane: %w", context.Cause(ctx))
		}
	}
}

// provide fills a folder next to target and then renames each program into place, so that an
// interrupted process leaves nothing that looks complete.
func (c Cache) provide(target string, fill func(scratch string) error) error {
	scratch := target + ".new"
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("remove an interrupted build: %w", err)
	}
	defer os.RemoveAll(scratch)
	for _, dir := range []string{scratch, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create the cache of the control plane: %w", err)
		}
	}
	if err := fill(scratch); err != nil {
		return err
	}
	for _, name := range programs(true) {
		err := os.Rename(filepath.Join(scratch, name), filepath.Join(target, name))
		if err != nil && slices.Contains(programs(c.Kubectl), name) && !executable(target, name) {
			return fmt.Errorf("move %s into the cache: %w", name, err)
		}
	}
	return nil
}

func executable(dir, name string) bool {
	_, err := binariesIn(dir, name)
	return err == nil
}
