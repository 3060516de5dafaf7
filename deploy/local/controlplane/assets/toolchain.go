package assets

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// toolchain runs the go command in one folder.
type toolchain struct {
	path string
	dir  string
}

func findToolchain(dir string) (toolchain, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return toolchain{}, fmt.Errorf("%w: %w; install Go or set %s to a folder with %s, %s and %s",
			ErrNoToolchain, err, EnvDir, etcd, apiServer, kubectl)
	}
	return toolchain{path: path, dir: dir}, nil
}

// run hands every line of output, of both streams, to each. When the command
// fails, the error carries the last lines.
func (t toolchain) run(ctx context.Context, each func(line string), args ...string) error {
	cmd := exec.CommandContext(ctx, t.path, args...)
	cmd.Dir = t.dir
	cmd.Env = buildEnv()
	// An interrupted go command removes its work folder, a killed one does not.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run go %s: %w", args[0], err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run go %s: %w", args[0], err)
	}
	var last tail
	for lines := bufio.NewScanner(output); lines.Scan(); {
		each(lines.Text())
		last.add(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build the control plane: %w", context.Cause(ctx))
		}
		return fmt.Errorf("%w: go %s: %w: %s", ErrBuild, args[0], err, last)
	}
	return nil
}

// buildEnv overrides what would change the result or the meaning of the module:
// the user's workspace, flags, cgo and target.
func buildEnv() []string {
	return append(os.Environ(),
		"GOWORK=off",
		"GO111MODULE=on",
		"GOFLAGS=-mod=readonly",
		"CGO_ENABLED=0",
		"GOOS="+runtime.GOOS,
		"GOARCH="+runtime.GOARCH,
	)
}

// buildFlags are those of the release builds as far as they matter here. The
// API server reports its version to clients from the stamp.
func buildFlags(version string) []string {
	return []string{"-trimpath", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + version}
}

// isPackage distinguishes the import paths in the go command's output from its messages
// ("go: downloading …") and from the headings of compile errors ("# pkg").
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}

// tail keeps the last messages of an output.
type tail []string

func (t *tail) add(line string) {
	line = strings.TrimSpace(line)
	if line == "" || isPackage(line) {
		return
	}
	*t = append(*t, line)
	if len(*t) > 4 {
		*t = (*t)[1:]
	}
}

func (t tail) String() string { return strings.Join(t, "; ") }
