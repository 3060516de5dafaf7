package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
)

// dataDir is the folder of one control plane:
//
//	kubeconfig   of the administrator
//	port         of the API server
//	pki/         certificates and keys
//	etcd/        data
//	logs/        of this run
type dataDir struct {
	dir       string
	temporary bool
	lock      *filelock.Lock
}

// openDataDir creates the folder when needed and keeps other control planes out of it.
func openDataDir(dir string) (dataDir, error) {
	opened, err := dataDir{dir: dir}.create()
	if err != nil {
		return dataDir{}, fmt.Errorf("create the folder of the control plane: %w", err)
	}
	if opened.lock, err = filelock.Own(opened.dir, "control plane"); err != nil {
		return dataDir{}, err
	}
	// Logs of earlier runs would grow without limit and mislead.
	if err := os.RemoveAll(opened.path("logs")); err != nil {
		return dataDir{}, fmt.Errorf("remove old logs: %w", errors.Join(err, opened.close()))
	}
	if err := os.Mkdir(opened.path("logs"), 0o700); err != nil {
		return dataDir{}, fmt.Errorf("create folder of logs: %w", errors.Join(err, opened.close()))
	}
	return opened, nil
}

func (d dataDir) create() (dataDir, error) {
	if d.dir == "" {
		dir, err := os.MkdirTemp("", "control-plane-")
		return dataDir{dir: dir, temporary: true}, err
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return dataDir{}, err
	}
	return dataDir{dir: dir}, os.MkdirAll(dir, 0o700)
}

func (d dataDir) path(elements ...string) string {
	return filepath.Join(append([]string{d.dir}, elements...)...)
}

func (d dataDir) log(process string) string {
	return d.path("logs", process+".log")
}

// close lets others use the folder, or removes it when it is temporary.
func (d dataDir) close() error {
	err := d.lock.Unlock()
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}
