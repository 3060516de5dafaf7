package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/store"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/versions"

	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

const (
	// reachTimeout is for the index of the archives: without a way out, the build
	// begins soon.
	reachTimeout = 3 * time.Second
	// fetchTimeout is for an archive of some 60 MB; a build takes no longer.
	fetchTimeout = 5 * time.Minute
)

// Archives are those of envtest: the store that setup-envtest keeps on this machine,
// and the releases that it is filled from.
type Archives struct {
	// Store is the folder on this machine.
	Store string
	// Index is the URL of the list of releases with their checksums; empty: that of
	// setup-envtest.
	Index string
}

func defaultArchives() (*Archives, error) {
	dir, err := store.DefaultStoreDir()
	if err != nil {
		return nil, fmt.Errorf("find the archives of envtest: %w", err)
	}
	return &Archives{Store: dir}, nil
}

// provide returns programs of the store that serve, and fills it first where that
// can be reached. What is in the way of that is displayed: it is no error, since
// they can be built.
func (a *Archives) provide(ctx context.Context, part *progress.Part, programs []string) (Binaries, bool) {
	ctx = logr.NewContext(ctx, logr.Discard()) // the store asks for one
	at := store.NewAt(a.Store)
	if err := at.Initialize(ctx); err != nil {
		part.Note("control plane: leaving out the archives of envtest: %s", err)
		return Binaries{}, false
	}
	pinned := version.MustParseSemantic(kubernetesVersion())
	wanted := store.Filter{
		Version:  versions.Spec{Selector: versions.PatchSelector{Major: int(pinned.Major()), Minor: int(pinned.Minor()), Patch: versions.AnyPoint}},
		Platform: versions.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH},
	}
	if found, ok := a.stored(ctx, at, wanted, programs); ok {
		return found, true
	}
	if err := a.fetch(ctx, at, wanted, part); err != nil {
		part.Note("control plane: no archive of envtest to be had, building from source: %s", err)
		return Binaries{}, false
	}
	return a.stored(ctx, at, wanted, programs)
}

// stored returns the newest programs of the store that serve.
func (a *Archives) stored(ctx context.Context, at *store.Store, wanted store.Filter, programs []string) (Binaries, bool) {
	items, err := at.List(ctx, wanted)
	if err != nil {
		return Binaries{}, false
	}
	for _, item := range items {
		dir, err := at.Path(item)
		if err != nil {
			continue
		}
		found, err := binariesIn(dir, programs...)
		if err != nil {
			continue
		}
		if _, err := found.serves(ctx); err == nil {
			return found, true
		}
	}
	return Binaries{}, false
}

// fetch puts the newest archive that is wanted into the store, if its checksum is
// that of the index.
func (a *Archives) fetch(ctx context.Context, at *store.Store, wanted store.Filter, part *progress.Part) error {
	releases := &remote.HTTPClient{Log: logr.Discard(), IndexURL: a.Index}
	part.Display("control plane: looking for an archive of envtest")
	item, platform, err := newest(ctx, releases, wanted)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "envtest-*.tar.gz")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	counted := io.MultiWriter(file, &counter{part: part, what: item.Version.String()})
	if err := releases.GetVersion(ctx, item.Version, platform, counted); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return at.Add(ctx, item, file)
}

// newest returns the newest release that is wanted, with its checksum.
func newest(ctx context.Context, releases *remote.HTTPClient, wanted store.Filter) (store.Item, versions.PlatformItem, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	all, err := releases.ListVersions(ctx)
	if err != nil {
		return store.Item{}, versions.PlatformItem{}, err
	}
	for _, release := range all { // newest first
		for _, platform := range release.Platforms {
			item := store.Item{Version: release.Version, Platform: platform.Platform}
			if wanted.Matches(item) {
				return item, platform, nil
			}
		}
	}
	return store.Item{}, versions.PlatformItem{}, fmt.Errorf("none of %s for %s", wanted.Version, wanted.Platform)
}

// counter displays how much was written.
type counter struct {
	part  *progress.Part
	what  string
	bytes int
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	c.part.Display("control plane: fetching %s, %d MB", c.what, c.bytes>>20)
	return len(p), nil
}
