// Package filelock keeps two processes from using the same folder at once.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrLocked means that another process, or another Lock of this process, has locked the file.
var ErrLocked = errors.New("locked by another process")

// ErrInUse means that a folder has an owner already.
var ErrInUse = errors.New("folder in use")

// Lock is an exclusive flock(2). The kernel releases it when the process dies,
// so that a crash leaves nothing to clean up.
type Lock struct {
	file *os.File
}

// Try takes the lock without waiting. It creates the file if needed, and returns an error that
// wraps ErrLocked if another process has the lock.
func Try(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{file: file}, nil
}

// Unlock releases the lock. The file stays, because two processes could otherwise lock two files of
// the same name.
func (l *Lock) Unlock() error {
	return l.file.Close()
}

// Folder is a folder that one process has for itself.
type Folder struct {
	// Dir is the absolute path.
	Dir string
	// Temporary folders are removed by Close.
	Temporary bool
	lock      *Lock
}

// OpenFolder creates a folder if needed, and locks it for a program, whose name is part of the error. An empty name is
// a temporary folder. The error wraps ErrInUse if the folder is locked.
func OpenFolder(dir, program string) (f Folder, err error) {
	if f.Temporary = dir == ""; f.Temporary {
		f.Dir, err = os.MkdirTemp("", strings.ReplaceAll(program, " ", "-")+"-")
	} else if f.Dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(f.Dir, 0o700)
	}
	if err != nil {
		return f, fmt.Errorf("create the folder of %s: %w", program, err)
	}
	f.lock, err = Try(filepath.Join(f.Dir, "lock"))
	if errors.Is(err, ErrLocked) {
		err = fmt.Errorf("%w: another %s runs in %s: stop it or choose another folder", ErrInUse, program, f.Dir)
	}
	return f, err
}

// Close unlocks the folder, and removes it if it is temporary.
func (f Folder) Close() error {
	err := f.lock.Unlock()
	if f.Temporary {
		err = errors.Join(err, os.RemoveAll(f.Dir))
	}
	return err
}
