// Package reload reads a mounted file and follows its changes.
//
// Files are compared by content, because a mounted ConfigMap or Secret changes by swapping a symbolic
// link, and time stamps of files are coarse. The files are small and read every few seconds.
package reload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// MaxSize is the maximum size of a file, in bytes.
const MaxSize = 1 << 20

// interval is the time between two checks of a file.
const interval = 5 * time.Second

// ErrTooLarge means that a file has more than MaxSize bytes.
var ErrTooLarge = errors.New("file exceeds 1 MiB")

// File holds the last valid value of a file. It is safe for concurrent use.
type File[T any] struct {
	paths []string
	parse func([][]byte) (T, error)
	value atomic.Pointer[T]

	mu      sync.Mutex
	content [][]byte
	failure string
	hash    string
}

// Open reads the file at path for the first time. It fails if the file is missing or too large, or
// if parse rejects it.
func Open[T any](path string, parse func([]byte) (T, error)) (*File[T], error) {
	return OpenAll([]string{path}, func(content [][]byte) (T, error) { return parse(content[0]) })
}

// OpenOptional is Open for a file that may appear later: a missing one counts as empty.
func OpenOptional[T any](path string, parse func([]byte) (T, error)) (*File[T], error) {
	f, err := Open(path, parse)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	f = &File[T]{paths: []string{path}, parse: func(content [][]byte) (T, error) { return parse(content[0]) }}
	f.failure = err.Error() // it lost no content, so there is nothing to report
	value, err := parse(nil)
	f.value.Store(&value)
	return f, err
}

// OpenAll is Open for files that only make sense together, such as a certificate and its key. Parse
// receives them in the same order.
func OpenAll[T any](paths []string, parse func([][]byte) (T, error)) (*File[T], error) {
	f := &File[T]{paths: paths, parse: parse}
	if _, err := f.poll(); err != nil {
		return nil, err
	}
	return f, nil
}

// Value returns the last valid value, or the zero value of a nil File.
func (f *File[T]) Value() (value T) {
	if f == nil {
		return value
	}
	return *f.value.Load()
}

// Hash identifies the content of the last valid value (empty for a nil File). It may help to guess a short secret.
func (f *File[T]) Hash() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hash
}

// poll reports whether there is a new value. It returns each error once per state of the file, not
// once per check.
func (f *File[T]) poll() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := readAll(f.paths)
	if err != nil {
		// A file that reappears is parsed again, even with the same content.
		f.content = nil
		return false, f.once(err)
	}
	same := f.content != nil && slices.EqualFunc(content, f.content, bytes.Equal)
	// An invalid file is parsed again, because it may name files that appear later.
	if same && f.failure == "" {
		return false, nil
	}
	if !same {
		f.failure = ""
	}
	f.content = content
	value, err := f.parse(content)
	if err != nil {
		return false, f.once(fmt.Errorf("read %s: %w", f.name(), err))
	}
	f.failure, f.hash = "", fmt.Sprintf("%x", sha256.Sum256(bytes.Join(content, []byte{0})))
	f.value.Store(&value)
	return true, nil
}

func (f *File[T]) name() string { return strings.Join(f.paths, " and ") }

// Poll reads the file again. It calls report, if set, with path and nil for each new value, and
// with path and an error once for each state in which the file is missing or invalid. The last
// valid value then stays. A nil File does nothing.
func (f *File[T]) Poll(report func(path string, err error)) {
	if f == nil {
		return
	}
	if changed, err := f.poll(); (changed || err != nil) && report != nil {
		report(f.name(), err)
	}
}

// Report returns a function that logs the result of a check, for Poll.
func Report(log zerolog.Logger) func(path string, err error) {
	return func(path string, err error) {
		if err != nil {
			log.Error().Err(err).Msg("keeping the last valid content of file " + path)
			return
		}
		log.Info().Msg("loaded the new content of file " + path)
	}
}

// once returns err unless it is the same as the last one.
func (f *File[T]) once(err error) error {
	if err.Error() == f.failure {
		return nil
	}
	f.failure = err.Error()
	return err
}

func readAll(paths []string) ([][]byte, error) {
	all := make([][]byte, len(paths))
	for i, path := range paths {
		var err error
		if all[i], err = read(path); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > MaxSize {
		return nil, fmt.Errorf("read %s: %w", path, ErrTooLarge)
	}
	if content == nil {
		content = []byte{}
	}
	return content, nil
}

// Run calls poll at every tick until ctx is done. Without ticks it uses its own ticker.
func Run(ctx context.Context, ticks <-chan time.Time, poll func()) {
	if ticks == nil {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			poll()
		}
	}
}
