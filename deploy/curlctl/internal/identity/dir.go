package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kv8s/curl-me-that/proto/signature"
)

// Dir keeps files in a directory.
type Dir struct {
	// Path of the directory, which is made if need be.
	Path string
	// Mode of files with secrets. All others can be read by everybody who may
	// enter the directory.
	Mode fs.FileMode
}

// publicMode is of files without secrets.
const publicMode = 0o644

// Where implements Store.
func (d Dir) Where(file string) string { return filepath.Join(d.Path, file) }

// Load implements Store.
func (d Dir) Load(context.Context) (Files, error) {
	files := Files{}
	for _, file := range allFiles() {
		content, err := os.ReadFile(d.Where(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read identities: %w", err)
		}
		files[file] = content
	}
	return files, nil
}

// allFiles in the order in which they are written: what is made of others comes
// behind them, so that a run that was interrupted can be followed by another.
func allFiles() []string {
	var files []string
	for _, name := range identityNames() {
		files = append(files, seedFile(name))
	}
	return append(files, signature.SeedFile, signature.KeysFile, caKey, caCert, serverKey, serverCert, variablesFile)
}

// Save implements Store. A file is there with all that is in it, or not at all.
func (d Dir) Save(ctx context.Context, before, after Files) error {
	// Who may read a file must be able to get to it.
	if err := os.MkdirAll(d.Path, d.Mode|d.Mode&0o444>>2|0o300); err != nil {
		return fmt.Errorf("make directory for identities: %w", err)
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if now, err := d.Load(ctx); err != nil {
		return err
	} else if !maps.EqualFunc(now, before, bytes.Equal) {
		return fmt.Errorf("write to %s: %w", d.Path, errRaced)
	}
	for _, file := range allFiles() {
		old, exists := before[file]
		if _, wanted := after[file]; !wanted || exists && bytes.Equal(old, after[file]) {
			continue
		}
		if err := d.write(file, after[file]); err != nil {
			return err
		}
	}
	return nil
}

// lock holds the directory until unlock is called or the process ends, so that a
// key and the certificate for it are those of one process.
func (d Dir) lock() (unlock func(), err error) {
	dir, err := os.Open(d.Path)
	if err != nil {
		return nil, fmt.Errorf("lock directory for identities: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock directory for identities: %w", err)
	}
	return func() { _ = dir.Close() }, nil
}

func (d Dir) write(file string, content []byte) error {
	fail := func(err error) error { return fmt.Errorf("write %s: %w", d.Where(file), err) }
	temporary, err := os.CreateTemp(d.Path, ".identity-*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(temporary.Name())
	mode := fs.FileMode(publicMode)
	if isSecret(file) {
		mode = d.Mode
	}
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close()); err != nil {
		return fail(err)
	}
	if err := os.Rename(temporary.Name(), d.Where(file)); err != nil {
		return fail(err)
	}
	return nil
}
