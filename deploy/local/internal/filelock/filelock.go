// Package filelock keeps two processes from using the same folder at once.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked means that another process, or another Lock of this one, holds the file.
var ErrLocked = errors.New("locked by another process")

// Lock is an exclusive flock(2). The kernel releases it when the process dies,
// so that a crash leaves nothing to clean up.
type Lock struct {
	file *os.File
}

// Try takes the lock without waiting. It creates the file when needed, and
// returns an error that wraps ErrLocked when somebody else holds it.
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

// Unlock lets the next one in. The file stays, since removing it would let two
// processes lock two files of the same name.
func (l *Lock) Unlock() error {
	return l.file.Close()
}
