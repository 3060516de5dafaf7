// Package assets provides the programs of a control plane: etcd, kube-apiserver
// and kubectl, from a folder that the user names, from what is on this machine or
// can be fetched, or built from source.
package assets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// EnvDir is the variable that names a folder with ready-made binaries. The name
// is that of controller-runtime's envtest, whose downloads fit.
const EnvDir = "KUBEBUILDER_ASSETS"

const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
	kubectl   = "kubectl"
)

// versionTimeout is for a program that prints its version; some take a second to
// load.
const versionTimeout = 10 * time.Second

// Binaries are the programs of a control plane, all in one folder. The zero
// value names none.
type Binaries struct {
	Dir string
}

// Etcd is the path of etcd.
func (b Binaries) Etcd() string { return filepath.Join(b.Dir, etcd) }

// APIServer is the path of kube-apiserver.
func (b Binaries) APIServer() string { return filepath.Join(b.Dir, apiServer) }

// Kubectl is the path of kubectl, which is there if it was asked for.
func (b Binaries) Kubectl() string { return filepath.Join(b.Dir, kubectl) }

// binariesIn returns the binaries of dir, or an error that wraps ErrMissing and names
// the first of the programs that is absent or cannot be executed.
func binariesIn(dir string, programs ...string) (Binaries, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, fmt.Errorf("resolve folder of binaries: %w", err)
	}
	for _, name := range programs {
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

var printedVersion = regexp.MustCompile(`v?\d+\.\d+\.\d+\S*`)

// serves returns the version of the API server, or why it does not serve: it, or
// etcd, does not run here, or it is of an older minor version than the pinned one.
func (b Binaries) serves(ctx context.Context) (string, error) {
	if _, err := printed(ctx, b.Etcd()); err != nil {
		return "", err
	}
	text, err := printed(ctx, b.APIServer())
	if err != nil {
		return "", err
	}
	have, err := version.ParseSemantic(text)
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", apiServer, err)
	}
	pinned := version.MustParseSemantic(kubernetesVersion())
	if !have.AtLeast(version.MajorMinor(pinned.Major(), pinned.Minor())) {
		return "", fmt.Errorf("its %s is %s, and %d.%d is needed", apiServer, text, pinned.Major(), pinned.Minor())
	}
	return text, nil
}

// printed returns the version that a program prints.
func printed(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "--version").Output() //nolint:gosec // a program that the user has put on the path, or into a store of theirs
	if err != nil {
		return "", fmt.Errorf("run %s --version: %w", program, err)
	}
	return string(printedVersion.Find(text)), nil
}
