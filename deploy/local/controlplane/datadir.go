package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
)

// home is the folder of one control plane:
//
//	kubeconfig   of the administrator
//	port         of the API server
//	pki/         certificates and keys
//	etcd/        data
//	logs/        of this run
type home struct {
	dir       string
	temporary bool
	lock      *filelock.Lock
}

// openHome creates the folder when needed and keeps other control planes out of it.
func openHome(dir string) (home, error) {
	opened, err := home{dir: dir}.create()
	if err != nil {
		return home{}, fmt.Errorf("create the folder of the control plane: %w", err)
	}
	opened.lock, err = filelock.Try(opened.path("lock"))
	if errors.Is(err, filelock.ErrLocked) {
		return home{}, fmt.Errorf("%w: another control plane runs in %s; stop it or choose another folder", ErrInUse, opened.dir)
	}
	if err != nil {
		return home{}, err
	}
	// Logs of earlier runs would grow without limit and mislead.
	if err := os.RemoveAll(opened.path("logs")); err != nil {
		return home{}, fmt.Errorf("remove old logs: %w", errors.Join(err, opened.close()))
	}
	if err := os.Mkdir(opened.path("logs"), 0o700); err != nil {
		return home{}, fmt.Errorf("create folder of logs: %w", errors.Join(err, opened.close()))
	}
	return opened, nil
}

func (h home) create() (home, error) {
	if h.dir == "" {
		dir, err := os.MkdirTemp("", "control-plane-")
		return home{dir: dir, temporary: true}, err
	}
	dir, err := filepath.Abs(h.dir)
	if err != nil {
		return home{}, err
	}
	return home{dir: dir}, os.MkdirAll(dir, 0o700)
}

func (h home) path(elements ...string) string {
	return filepath.Join(append([]string{h.dir}, elements...)...)
}

func (h home) log(process string) string {
	return h.path("logs", process+".log")
}

// close lets others use the folder, or removes it when it is temporary.
func (h home) close() error {
	err := h.lock.Unlock()
	if h.temporary {
		err = errors.Join(err, os.RemoveAll(h.dir))
	}
	return err
}
