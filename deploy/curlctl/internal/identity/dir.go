package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir keeps files in a directory, which it creates if necessary.
type Dir struct {
	Path string
	// Mode of secret files. Other files are readable by everybody who may enter the directory.
	Mode fs.FileMode
}

// publicMode is the mode of files without secrets.
const publicMode = 0o644

// Where implements Store.
func (d Dir) Where(file string) string { return filepath.Join(d.Path, file) }

// Update implements Store. It locks the directory, and writes each file atomically.
func (d Dir) Update(_ context.Context, change func(Files) (Files, error)) error {
	fail := func(err error) error { return fmt.Errorf("update identities: %w", err) }
	// A group that may read the files must be able to enter the directory.
	if err := os.MkdirAll(d.Path, d.Mode|d.Mode&0o444>>2|0o300); err != nil {
		return fail(err)
	}
	dir, err := os.Open(d.Path)
	if err != nil {
		return fail(err)
	}
	defer dir.Close() // unlocks
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return fail(err)
	}
	before := Files{}
	for _, file := range allFiles() {
		content, err := os.ReadFile(d.Where(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		before[file] = content
	}
	after, err := change(before)
	if err != nil {
		return err
	}
	for _, file := range allFiles() {
		content, wanted := after[file]
		if old, exists := before[file]; !wanted || exists && bytes.Equal(old, content) {
			continue
		}
		if err := d.write(file, content); err != nil {
			return fmt.Errorf("write %s: %w", d.Where(file), err)
		}
	}
	return nil
}

func (d Dir) write(file string, content []byte) error {
	temporary, err := os.CreateTemp(d.Path, ".identity-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	mode := fs.FileMode(publicMode)
	if file == caKey || file == serverKey || strings.HasSuffix(file, ".nk") { // a private key
		mode = d.Mode
	}
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), d.Where(file))
}
