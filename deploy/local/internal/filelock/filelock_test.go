package filelock_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
)

func TestTheSecondHolderIsRefusedUntilTheFirstUnlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.Try(path); !errors.Is(err, filelock.ErrLocked) {
		t.Fatalf("second Try: got %v, want ErrLocked", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	second, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("after Unlock: %v", err)
	}
	if err := second.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderThatDoesNotExistIsAnError(t *testing.T) {
	_, err := filelock.Try(filepath.Join(t.TempDir(), "missing", "lock"))
	if err == nil || errors.Is(err, filelock.ErrLocked) {
		t.Fatalf("got %v, want an error that is not ErrLocked", err)
	}
}
