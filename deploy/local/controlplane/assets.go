package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// ProgramOptions configure FindPrograms.
type ProgramOptions struct {
	// Build ignores KUBEBUILDER_ASSETS and archives of envtest.
	Build bool
	// Progress receives the progress, for people. Nil means no output.
	Progress io.Writer
	// Cache is a folder with the programs of each version. Several processes may share it. The default is the
	// user's cache folder.
	Cache string
	// Index is the URL of the list of archives. The default is the list of setup-envtest.
	Index string

	display *progress
}

// Programs are etcd, kube-apiserver and kubectl in one folder.
type Programs struct {
	Dir string
}

// Etcd returns the path of etcd.
func (b Programs) Etcd() string { return filepath.Join(b.Dir, etcd) }

// APIServer returns the path of kube-apiserver.
func (b Programs) APIServer() string { return filepath.Join(b.Dir, apiServer) }

// Kubectl returns the path of kubectl.
func (b Programs) Kubectl() string { return filepath.Join(b.Dir, kubectl) }

// FindPrograms returns the programs in the folder of KUBEBUILDER_ASSETS. If that is not set, it returns them from a
// cache, which it fills from an archive of envtest or by a build from source, which takes minutes.
func FindPrograms(ctx context.Context, o ProgramOptions) (Programs, error) {
	if dir := os.Getenv(EnvDir); dir != "" && !o.Build {
		found, err := binariesIn(dir)
		if err != nil {
			return Programs{}, fmt.Errorf(
				"%w: point %s at a folder with %s, %s and %s, or unset it to have them downloaded or built",
				err, EnvDir, etcd, apiServer, kubectl)
		}
		return found, nil
	}
	if o.Cache == "" {
		cache, err := cacheDir()
		if err != nil {
			return Programs{}, fmt.Errorf("find a cache folder for the control plane: %w: set HOME or %s", err, EnvDir)
		}
		o.Cache = cache
	}
	o.display = newProgress(o.Progress)
	defer o.display.close()
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
		found, err = ProgramOptions{Cache: cache}.find()
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
func binariesIn(dir string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("resolve the folder of the control plane: %w", err)
	}
	for _, name := range programs() {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Programs{}, fmt.Errorf("%w: no %s in %s", ErrMissing, name, dir)
		case err != nil:
			return Programs{}, fmt.Errorf("%w: %w", ErrMissing, err)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return Programs{}, fmt.Errorf("%w: %s in %s is not an executable file", ErrMissing, name, dir)
		}
	}
	return Programs{Dir: dir}, nil
}
