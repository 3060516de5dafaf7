// Package assets provides the programs of a control plane: etcd, kube-apiserver and
// kubectl.
package assets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

// EnvDir is the variable for a folder with the programs, named as in controller-runtime's envtest.
const EnvDir = "KUBEBUILDER_ASSETS"

// ErrMissing means that a folder lacks one of the programs.
var ErrMissing = errors.New("control plane binary missing")

const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
	kubectl   = "kubectl"
)

// Options configure Find.
type Options struct {
	// Build ignores KUBEBUILDER_ASSETS and archives of envtest.
	Build bool
	// Progress receives the progress, for people. Nil means no output.
	Progress io.Writer
	// Part is a part of an existing display, to be used instead of Progress.
	Part *progress.Part
	// Cache is a folder with the programs of each version. Several processes may share it. The default is the
	// user's cache folder.
	Cache string
	// Index is the URL of the list of archives. The default is the list of setup-envtest.
	Index string
}

// Binaries are the programs in one folder.
type Binaries struct {
	Dir string
}

// Etcd returns the path of etcd.
func (b Binaries) Etcd() string { return filepath.Join(b.Dir, etcd) }

// APIServer returns the path of kube-apiserver.
func (b Binaries) APIServer() string { return filepath.Join(b.Dir, apiServer) }

// Kubectl returns the path of kubectl.
func (b Binaries) Kubectl() string { return filepath.Join(b.Dir, kubectl) }

// Find returns the programs in the folder of KUBEBUILDER_ASSETS. If that is not set, it returns them from a cache,
// which it fills from an archive of envtest or by a build from source, which takes minutes.
func Find(ctx context.Context, o Options) (Binaries, error) {
	if dir := os.Getenv(EnvDir); dir != "" && !o.Build {
		found, err := binariesIn(dir)
		if err != nil {
			return Binaries{}, fmt.Errorf(
				"%w: point %s at a folder with %s, %s and %s, or unset it to have them downloaded or built",
				err, EnvDir, etcd, apiServer, kubectl)
		}
		return found, nil
	}
	if o.Cache == "" {
		cache, err := cacheDir()
		if err != nil {
			return Binaries{}, fmt.Errorf("find a cache folder for the control plane: %w: set HOME or %s", err, EnvDir)
		}
		o.Cache = cache
	}
	if o.Part == nil {
		report := progress.New(o.Progress)
		defer report.Close()
		o.Part = report.Part()
	}
	return o.fill(ctx)
}

// Kubectl returns the path of a kubectl on this machine.
func Kubectl() (string, bool) {
	if path, err := exec.LookPath(kubectl); err == nil {
		return path, true
	}
	found, err := binariesIn(os.Getenv(EnvDir))
	if err != nil {
		cache, _ := cacheDir() // without a home folder, find fails
		found, err = Options{Cache: cache}.find()
	}
	return found.Kubectl(), err == nil
}

func programs() []string { return []string{etcd, apiServer, kubectl} }

func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "curl-me-that", "control-plane"), err
}

// binariesIn returns the programs in dir. The error wraps ErrMissing and names the first program that is missing
// or cannot be executed.
func binariesIn(dir string) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, fmt.Errorf("resolve the folder of the control plane: %w", err)
	}
	for _, name := range programs() {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Binaries{}, fmt.Errorf("%w: no %s in %s", ErrMissing, name, dir)
		case err != nil:
			return Binaries{}, fmt.Errorf("%w: %w", ErrMissing, err)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return Binaries{}, fmt.Errorf("%w: %s in %s is not an executable file", ErrMissing, name, dir)
		}
	}
	return Binaries{Dir: dir}, nil
}
