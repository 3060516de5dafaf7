package reload_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kv8s/curl-me-that/proto/process/reload"
)

var errBad = errors.New("bad")

func parse(content []byte) (string, error) {
	if string(content) == "bad" {
		return "", errBad
	}
	return string(content), nil
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "one")
	file, err := reload.Open(path, parse)
	if err != nil {
		t.Fatal(err)
	}
	remove := func() { _ = os.Remove(path) }
	for i, step := range []struct {
		change  func()
		changed bool
		err     error
		value   string
	}{
		{func() {}, false, nil, "one"},
		{func() { write(t, path, "two") }, true, nil, "two"},
		{func() { write(t, path, "two") }, false, nil, "two"},
		{func() { write(t, path, "bad") }, false, errBad, "two"},
		{func() {}, false, nil, "two"},
		{func() { write(t, path, "three") }, true, nil, "three"},
		{remove, false, os.ErrNotExist, "three"},
		{remove, false, nil, "three"},
		{func() { write(t, path, "three") }, true, nil, "three"},
		{func() { write(t, path, "bad") }, false, errBad, "three"},
		{remove, false, os.ErrNotExist, "three"},
		{func() { write(t, path, "bad") }, false, errBad, "three"},
		{func() { write(t, path, "") }, true, nil, ""},
		{func() { write(t, path, string(make([]byte, reload.MaxSize+1))) }, false, reload.ErrTooLarge, ""},
		{func() { write(t, path, string(make([]byte, reload.MaxSize))) }, true, nil, string(make([]byte, reload.MaxSize))},
	} {
		step.change()
		var reports []error
		file.Poll(func(_ string, err error) { reports = append(reports, err) })
		err := errors.Join(reports...)
		changed := len(reports) == 1 && err == nil
		if len(reports) > 1 || changed != step.changed || !errors.Is(err, step.err) || file.Value() != step.value {
			t.Errorf("step %d: changed %t, %v, value of %d bytes", i, changed, err, len(file.Value()))
		}
	}
}

func TestAMissingOptionalFileIsReportedOnceItAppeared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := reload.OpenOptional(path, parse)
	if err != nil || file.Value() != "" {
		t.Fatalf("missing file gives %q, %v", file.Value(), err)
	}
	var reports []error
	poll := func() { file.Poll(func(_ string, err error) { reports = append(reports, err) }) }
	poll()
	if len(reports) > 0 {
		t.Errorf("it is reported before it appeared: %v", reports)
	}
	write(t, path, "one")
	poll()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	poll()
	if len(reports) != 2 || reports[0] != nil || !errors.Is(reports[1], os.ErrNotExist) || file.Value() != "one" {
		t.Errorf("value %q, reports %v", file.Value(), reports)
	}
}

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := reload.Open(path, parse); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file gives %v", err)
	}
	write(t, path, "bad")
	if _, err := reload.Open(path, parse); !errors.Is(err, errBad) {
		t.Errorf("broken file gives %v", err)
	}
}

func TestANilFileDoesNothing(t *testing.T) {
	var none *reload.File[string]
	none.Poll(func(string, error) { t.Error("it was reported") })
	if none.Value() != "" {
		t.Error("it has a value")
	}
}
