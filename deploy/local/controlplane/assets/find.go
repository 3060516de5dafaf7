package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

// Options are which binaries are looked for, and where. The zero value looks for
// etcd and kube-apiserver everywhere, in silence.
type Options struct {
	// Kubectl: kubectl is needed too.
	Kubectl bool
	// Build takes nothing that others have built, that of KUBEBUILDER_ASSETS included.
	Build bool
	// Progress receives what is done and how far it is; nil keeps it silent.
	Progress io.Writer
	// Part of a display that is there already, in the place of Progress.
	Part *progress.Part
}

func (o Options) programs() []string {
	if o.Kubectl {
		return []string{etcd, apiServer, kubectl}
	}
	return []string{etcd, apiServer}
}

// Find returns the binaries of the folder that KUBEBUILDER_ASSETS names; or those
// that were built before; or those of a folder of PATH or of the archives of
// envtest, which are fetched where they can be reached, all of them no older than
// the minor version that is pinned. Where there are none, or o.Build leaves out all
// but what was built before, it builds them from source, once per version, which
// takes minutes. No error means that all that o asks for is there.
func Find(ctx context.Context, o Options) (Binaries, error) {
	if dir := os.Getenv(EnvDir); dir != "" && !o.Build {
		found, err := binariesIn(dir, o.programs()...)
		if err != nil {
			return Binaries{}, fmt.Errorf(
				"%w; point %s at a folder with %s, %s and %s, or unset it to have them found or built",
				err, EnvDir, etcd, apiServer, kubectl)
		}
		return found, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Binaries{}, fmt.Errorf("find a cache folder for the control plane: %w; set HOME or %s", err, EnvDir)
	}
	if o.Part == nil {
		report := progress.New(o.Progress)
		defer report.Close()
		o.Part = report.Part()
	}
	builder := cachedIn(cache)
	builder.Kubectl, builder.Part = o.Kubectl, o.Part
	if !o.Build {
		if found, err := binariesIn(builder.target(), o.programs()...); err == nil {
			return found, nil
		}
		if found, ok := onPath(ctx, o.Part, o.programs()); ok {
			return found, nil
		}
		if builder.Archives, err = defaultArchives(); err != nil {
			return Binaries{}, err
		}
	}
	return builder.Build(ctx)
}

// Kubectl returns the path of a kubectl that is there: of PATH, or beside the
// binaries of a control plane.
func Kubectl() (string, bool) {
	if path, err := exec.LookPath(kubectl); err == nil {
		return path, true
	}
	dirs := []string{os.Getenv(EnvDir)}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, cachedIn(cache).target())
	}
	for _, dir := range dirs {
		if found, err := binariesIn(dir, kubectl); dir != "" && err == nil {
			return found.Kubectl(), true
		}
	}
	return "", false
}

// cachedIn is the builder that uses the user's cache.
func cachedIn(cache string) Builder {
	return Builder{Dir: filepath.Join(cache, "curl-me-that", "control-plane")}
}

// onPath returns the first folder of PATH that has all programs, in a version
// that serves.
func onPath(ctx context.Context, part *progress.Part, programs []string) (Binaries, bool) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		found, err := binariesIn(dir, programs...)
		if err != nil {
			continue
		}
		version, err := found.serves(ctx)
		if err == nil {
			part.Note("using %s and %s %s of %s", etcd, apiServer, version, dir)
			return found, true
		}
		part.Note("leaving out %s: %s", dir, err)
	}
	return Binaries{}, false
}
