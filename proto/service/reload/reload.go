// Package reload holds the content of a mounted file, and follows its changes.
//
// A file is compared by content, not by time stamp: a mounted ConfigMap or
// Secret changes by a swapped symbolic link, and time stamps of file systems
// are coarse. The files are small and read every few seconds.
package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// MaxSize is the largest file that is read, in bytes.
const MaxSize = 1 << 20

// interval is the time between two looks at a file.
const interval = 5 * time.Second

// ErrTooLarge is returned for a file of more than MaxSize bytes.
var ErrTooLarge = errors.New("file exceeds 1 MiB")

// File holds the last good value of a file. It is safe for concurrent use.
type File[T any] struct {
	path  string
	parse func([]byte) (T, error)
	value atomic.Pointer[T]

	mu      sync.Mutex
	content []byte
	failure string
}

// Open reads the file at path for the first time and fails if it is missing,
// too large or refused by parse.
func Open[T any](path string, parse func([]byte) (T, error)) (*File[T], error) {
	f := &File[T]{path: path, parse: parse}
	if _, err := f.poll(); err != nil {
		return nil, err
	}
	return f, nil
}

// Value returns the last good value.
func (f *File[T]) Value() T { return *f.value.Load() }

// poll reports whether a new value was taken. The error is given once for each state in
// which the file is found, not once for each look.
func (f *File[T]) poll() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := read(f.path)
	if err != nil {
		// What is there again later is parsed again, also if it is the same.
		f.content = nil
		return false, f.once(err)
	}
	if f.content != nil && bytes.Equal(content, f.content) {
		return false, nil
	}
	f.content = content
	value, err := f.parse(content)
	if err != nil {
		f.failure = ""
		return false, f.once(fmt.Errorf("read %s: %w", f.path, err))
	}
	f.failure = ""
	f.value.Store(&value)
	return true, nil
}

// Look reads the file again, and calls report, unless that is nil, with its path: with nil
// once for each new value that is taken, and with an error once for each state in which the
// file is missing or broken, while the last good value stays. A nil File does nothing.
func (f *File[T]) Look(report func(path string, err error)) {
	if f == nil {
		return
	}
	if changed, err := f.poll(); (changed || err != nil) && report != nil {
		report(f.path, err)
	}
}

// Report returns what logs how a look ended, for Look.
func Report(log zerolog.Logger) func(path string, err error) {
	return func(path string, err error) {
		if err != nil {
			log.Error().Err(err).Msg("keeping the last good content of file " + path)
			return
		}
		log.Info().Msg("took the new content of file " + path)
	}
}

// once lets an error through unless it is the one that was reported last.
func (f *File[T]) once(err error) error {
	if err.Error() == f.failure {
		return nil
	}
	f.failure = err.Error()
	return err
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

// Run calls poll at every tick until ctx is done. Without ticks it brings a
// ticker of its own.
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
