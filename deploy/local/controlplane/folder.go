package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

// ErrInUse means that another process uses a folder.
var ErrInUse = errors.New("folder in use")

// Folder is a folder that only one process uses. The kernel releases its lock when the process dies, so a crash
// leaves nothing to clean up.
type Folder struct {
	// Dir is the absolute path.
	Dir string
	// Temporary means that Close removes the folder.
	Temporary bool
	lock      *flock.Flock
}

// OpenFolder creates a folder if needed, and locks it. An empty dir means a temporary folder. Errors contain the name
// of the program, and wrap ErrInUse if the folder is locked.
func OpenFolder(dir, program string) (f Folder, err error) {
	if f.Temporary = dir == ""; f.Temporary {
		f.Dir, err = os.MkdirTemp("", strings.ReplaceAll(program, " ", "-")+"-")
	} else if f.Dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(f.Dir, 0o700)
	}
	if err != nil {
		return f, fmt.Errorf("create the folder of %s: %w", program, err)
	}
	f.lock = flock.New(filepath.Join(f.Dir, "lock"))
	locked, err := f.lock.TryLock()
	if err != nil {
		return f, fmt.Errorf("lock the folder of %s: %w", program, err)
	}
	if !locked {
		return f, fmt.Errorf("%w: another %s runs in %s: stop it or choose another folder", ErrInUse, program, f.Dir)
	}
	return f, nil
}

// Close unlocks the folder, and removes it if it is temporary. Otherwise it keeps the lock file, because two processes
// could lock two files of the same name.
func (f Folder) Close() error {
	err := f.lock.Unlock()
	if f.Temporary {
		err = errors.Join(err, os.RemoveAll(f.Dir))
	}
	return err
}
