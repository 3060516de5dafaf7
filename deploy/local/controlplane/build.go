package controlplane

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The module pins the sources. Its files end in .txt, because Go cannot embed files of another module. update.sh
// changes the version.
var (
	//go:embed go.mod.txt
	goMod []byte
	//go:embed go.sum.txt
	goSum []byte
)

var required = regexp.MustCompile(`\sk8s\.io/kubernetes (v\S+)`)

// kubernetesVersion returns the version in go.mod, which is defined nowhere else.
func kubernetesVersion() string { return string(required.FindSubmatch(goMod)[1]) }

// buildFlags returns the relevant flags of Kubernetes' release builds, without debug information. The API server
// reports the version in them.
func buildFlags(version string) []string {
	return []string{
		"-trimpath", noDWARF, "-ldflags",
		"-s -w -X k8s.io/component-base/version.gitVersion=" + version,
	}
}

// versionHash returns a hash of the sources, the flags and the platform.
func versionHash() string {
	text := string(goMod) + string(goSum) +
		strings.Join(append(buildFlags("version"), runtime.GOOS, runtime.GOARCH), "\n") + "\n"
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:16]
}

// build builds the programs into scratch.
func (p ProgramOptions) build(ctx context.Context, scratch string) error {
	for name, content := range map[string][]byte{"go.mod": goMod, "go.sum": goSum} {
		if err := os.WriteFile(filepath.Join(scratch, name), content, 0o600); err != nil {
			return fmt.Errorf("write the module to build: %w", err)
		}
	}
	err := p.compile(ctx, scratch)
	if errors.Is(err, ErrNoToolchain) {
		return fmt.Errorf("%w: install Go or set %s to a folder with %s", err, EnvDir, p.needed())
	}
	if err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	// The go command names etcd after its folder.
	if err := os.Rename(filepath.Join(scratch, "server"), filepath.Join(scratch, etcd)); err != nil {
		return fmt.Errorf("rename etcd: %w", err)
	}
	return os.RemoveAll(filepath.Join(scratch, sourceDir))
}

// compile runs `go list` to download the sources and to count the stale packages, whose names `go build -v` prints.
// Meanwhile it builds etcd, whose sources come first.
func (p ProgramOptions) compile(ctx context.Context, scratch string) error {
	env := []string{
		"GOWORK=off", "GO111MODULE=on", "GOFLAGS=-mod=readonly",
		"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH,
	}
	const etcdPackage = "go.etcd.io/etcd/server/v3"
	flags := buildFlags(kubernetesVersion())
	build := []string{"build", "-v", "-o", scratch + string(filepath.Separator)}
	stale, downloads := 0, 0
	var built, total atomic.Int64
	listed := func(line string) {
		if isPackage(line) {
			stale++
		} else if strings.HasPrefix(line, "go: downloading ") {
			downloads++
			p.display.show("control plane: downloading the sources, modules: %d", downloads)
		}
	}
	compiled := func(line string) {
		if isPackage(line) {
			built.Add(1)
		}
		if all := total.Load(); all > 0 {
			p.display.show("control plane "+kubernetesVersion()+": %d of %d packages", min(built.Load(), all), all)
		}
	}
	p.display.show("control plane: looking up the sources")
	if err := withoutFakes(ctx, scratch, env); err != nil {
		return err
	}
	common := append(flags, etcdPackage)
	for _, name := range p.programs()[1:] {
		common = append(common, "k8s.io/kubernetes/cmd/"+name)
	}
	list := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, common...)
	var early sync.WaitGroup
	early.Go(func() { // the build below repeats an error
		_ = goCommand(ctx, scratch, env, compiled, slices.Concat(build, flags, []string{etcdPackage})...)
	})
	err := goCommand(ctx, scratch, env, listed, list...)
	total.Store(int64(stale))
	early.Wait()
	if err != nil {
		return err
	}
	return goCommand(ctx, scratch, env, compiled, append(build, common...)...)
}

// sourceDir has a changed module during a build.
const sourceDir = "apiserver"

// withoutFakes replaces k8s.io/apiserver with a copy that lacks a helper for tests, because the imports of that helper,
// fakes of all APIs, take a tenth of the build. An overlay cannot leave out a file of a module.
func withoutFakes(ctx context.Context, scratch string, env []string) error {
	const module, helper = "k8s.io/apiserver", "pkg/admission/plugin/policy/generic/policy_test_context.go"
	var source string
	last := func(line string) { source = line }
	if err := goCommand(ctx, scratch, env, last, "mod", "download", module); err != nil {
		return err
	}
	if err := goCommand(ctx, scratch, env, last, "list", "-m", "-f", "{{.Dir}}", module); err != nil {
		return err
	}
	target := filepath.Join(scratch, sourceDir)
	if err := os.CopyFS(target, os.DirFS(source)); err != nil {
		return fmt.Errorf("copy %s: %w", module, err)
	}
	if err := os.Remove(filepath.Join(target, filepath.FromSlash(helper))); err != nil {
		return fmt.Errorf("remove a helper of %s: %w", module, err)
	}
	return goCommand(ctx, scratch, env, last, "mod", "edit", "-replace="+module+"=./"+sourceDir)
}

var (
	// ErrNoToolchain means that there is no go command.
	ErrNoToolchain = errors.New("no go toolchain")
	// ErrFailed means that the go command failed.
	ErrFailed = errors.New("the build failed")
)

// noDWARF omits debug information, which saves a fifth of the compile time. All builds use this flag, so that they
// share the build cache.
const noDWARF = "-gcflags=all=-dwarf=false"

// lessGC makes compiler and linker collect garbage less often, which saves a quarter of their CPU time. A GOGC of this
// process takes precedence.
const lessGC = "GOGC=400"

// goCommand runs the go command in dir and calls each for every line of its output. If it fails, the error wraps
// ErrFailed and contains the last lines.
func goCommand(ctx context.Context, dir string, env []string, each func(line string), args ...string) error {
	golang, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoToolchain, err)
	}
	cmd := exec.CommandContext(ctx, golang, args...)
	cmd.Dir, cmd.Env = dir, slices.Concat([]string{lessGC}, os.Environ(), []string{"CGO_ENABLED=0"}, env)
	// Unlike a killed go command, an interrupted one removes its work folder.
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
	var messages []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		each(lines.Text())
		if message := strings.TrimSpace(lines.Text()); message != "" && !isPackage(message) {
			messages = append(messages, message)
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("run go %s: %w", args[0], context.Cause(ctx))
		}
		return fmt.Errorf("%w: go %s: %w: %s", ErrFailed, args[0], err,
			strings.Join(messages[max(0, len(messages)-4):], "; "))
	}
	return nil
}

// isPackage reports whether a line of the go command is an import path, rather than a message ("go: downloading …")
// or the heading of compile errors ("# pkg").
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}
