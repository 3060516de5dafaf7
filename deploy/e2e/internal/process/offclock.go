package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clockVariable shifts the wall clock of a program of BuildOffClock by a duration.
const clockVariable = "WALL_CLOCK_OFF_BY"

const (
	// clockRead is the line of time.Now that reads the clocks, and clockOff the line
	// after it. The monotonic clock is not changed.
	clockRead = "\tsec, nsec, mono := runtimeNow()\n"
	clockOff  = "\tsec += offBy\n"
	// offBySource is a further file of package time.
	offBySource = `package time

import "syscall"

var offBy = func() (seconds int64) {
	text, _ := syscall.Getenv("` + clockVariable + `")
	d, _ := ParseDuration(text)
	return int64(d / Second)
}()
`
)

// BuildOffClock builds a program into dir as `make build` does, but with a standard
// library whose wall clock can be shifted, and returns its path. Our programs have no
// such option, and a preloaded library has no effect on a static program.
func BuildOffClock(ctx context.Context, pkg, dir string) (path string, err error) {
	overlay, err := overlayTime(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("set the clock of %s off: %w", pkg, err)
	}
	path = filepath.Join(dir, filepath.Base(pkg))
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
		"-overlay="+overlay, "-o="+path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, strings.TrimSpace(string(text)))
	}
	return path, nil
}

// overlayTime writes an overlay for package time, and returns its path.
func overlayTime(ctx context.Context, dir string) (path string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", fmt.Errorf("read the standard library: %w", err)
	}
	if strings.Count(string(source), clockRead) != 1 {
		return "", errors.New("time.Now of this version of Go reads the clocks in a different way: change clockRead")
	}
	replaced := map[string]string{}
	for name, text := range map[string]string{
		"time.go":  strings.Replace(string(source), clockRead, clockRead+clockOff, 1),
		"offby.go": offBySource,
	} {
		file := filepath.Join(dir, name)
		replaced[filepath.Join(library, name)] = file
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// ClockOff is the environment variable that sets the wall clock ahead by whole seconds,
// or back if negative.
func ClockOff(by time.Duration) string { return clockVariable + "=" + by.String() }
