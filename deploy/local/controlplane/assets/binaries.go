// Package assets provides the programs of a control plane: etcd, kube-apiserver
// and kubectl, either from a folder that the user names or built from source.
package assets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// EnvDir is the variable that names a folder with ready-made binaries. The name
// is that of controller-runtime's envtest, whose downloads fit.
const EnvDir = "KUBEBUILDER_ASSETS"

const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
	kubectl   = "kubectl"
)

// Binaries are the programs of a control plane, all in one folder. The zero
// value names none.
type Binaries struct {
	Dir string
}

// Etcd is the path of etcd.
func (b Binaries) Etcd() string { return filepath.Join(b.Dir, etcd) }

// APIServer is the path of kube-apiserver.
func (b Binaries) APIServer() string { return filepath.Join(b.Dir, apiServer) }

// Kubectl is the path of kubectl.
func (b Binaries) Kubectl() string { return filepath.Join(b.Dir, kubectl) }

// In returns the binaries of dir, or an error that wraps ErrMissing and names
// the first that is absent or cannot be executed.
func In(dir string) (Binaries, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, fmt.Errorf("resolve folder of binaries: %w", err)
	}
	for _, name := range []string{etcd, apiServer, kubectl} {
		if err := checkExecutable(absolute, name); err != nil {
			return Binaries{}, err
		}
	}
	return Binaries{Dir: absolute}, nil
}

func checkExecutable(dir, name string) error {
	info, err := os.Stat(filepath.Join(dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: no %s in %s", ErrMissing, name, dir)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%w: %s in %s is not an executable file", ErrMissing, name, dir)
	}
	return nil
}
