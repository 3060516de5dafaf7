package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
	"github.com/kv8s/curl-me-that/deploy/local/internal/gobuild"
	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

// Builder provides the binaries once per version: it builds them from source into
// a folder of its own below Dir, which several processes may share.
type Builder struct {
	Dir string
	// Kubectl: kubectl is needed too.
	Kubectl bool
	// Part displays how far it is.
	Part *progress.Part
	// Archives are taken in the place of a build, where they can be had.
	Archives *Archives
}

func (b Builder) target() string { return filepath.Join(b.Dir, versionHash()) }

func (b Builder) programs() []string { return Options{Kubectl: b.Kubectl}.programs() }

// Build returns the binaries and provides them first when they are missing. While
// another process does that it waits and displays so. A build that is interrupted
// leaves nothing that a later one would take for complete.
func (b Builder) Build(ctx context.Context) (Binaries, error) {
	if found, err := binariesIn(b.target(), b.programs()...); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(b.target(), 0o755); err != nil {
		return Binaries{}, fmt.Errorf("create the cache of the control plane: %w", err)
	}
	lock, err := b.lock(ctx, b.target()+".lock")
	if err != nil {
		return Binaries{}, err
	}
	defer lock.Unlock()
	if found, err := binariesIn(b.target(), b.programs()...); err == nil {
		return found, nil
	}
	if b.Archives != nil {
		if found, ok := b.Archives.provide(ctx, b.Part, b.programs()); ok {
			return found, nil
		}
	}
	if err := b.build(ctx); err != nil {
		return Binaries{}, err
	}
	b.Part.Display("control plane: built in %s", b.target())
	return binariesIn(b.target(), b.programs()...)
}

// lock polls, because a blocking flock cannot be cancelled.
func (b Builder) lock(ctx context.Context, path string) (*filelock.Lock, error) {
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		lock, err := filelock.Try(path)
		if !errors.Is(err, filelock.ErrLocked) {
			return lock, err
		}
		b.Part.Display("waiting for another process that builds the control plane")
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build of the control plane: %w", context.Cause(ctx))
		}
	}
}

func (b Builder) build(ctx context.Context) error {
	scratch := b.target() + ".building"
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
	err := b.missing(module).Build(ctx, bin, b.Part)
	if errors.Is(err, gobuild.ErrNoToolchain) {
		return fmt.Errorf("%w; install Go or set %s to a folder with %s, %s and %s", err, EnvDir, etcd, apiServer, kubectl)
	}
	if err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	return b.place(bin)
}

// missing are the programs that the target does not have yet.
func (b Builder) missing(module string) gobuild.Programs {
	programs := gobuild.Programs{
		What:  "control plane " + kubernetesVersion(),
		Dir:   module,
		Env:   []string{"GOWORK=off", "GO111MODULE=on", "GOFLAGS=-mod=readonly", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH},
		Flags: buildFlags(kubernetesVersion()),
	}
	for _, name := range b.programs() {
		if _, err := binariesIn(b.target(), name); err != nil {
			programs.Packages = append(programs.Packages, packageOf(name))
		}
	}
	return programs
}

// packageOf returns the main package of a program.
func packageOf(name string) string {
	if name == etcd {
		return "go.etcd.io/etcd/server/v3"
	}
	return "k8s.io/kubernetes/cmd/" + name
}

// place moves each program by a rename, so that none is ever half there.
func (b Builder) place(bin string) error {
	built, err := os.ReadDir(bin)
	if err != nil {
		return fmt.Errorf("read what was built: %w", err)
	}
	for _, file := range built {
		name := file.Name()
		if name == "server" {
			name = etcd // after whose folder the go command names it
		}
		if err := os.Rename(filepath.Join(bin, file.Name()), filepath.Join(b.target(), name)); err != nil {
			return fmt.Errorf("put %s into the cache: %w", name, err)
		}
	}
	return nil
}
