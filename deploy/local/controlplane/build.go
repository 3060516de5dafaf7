package controlplane

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
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
func (o ProgramOptions) build(ctx context.Context, scratch string) error {
	for name, content := range map[string][]byte{"go.mod": goMod, "go.sum": goSum} {
		if err := os.WriteFile(filepath.Join(scratch, name), content, 0o600); err != nil {
			return fmt.Errorf("write the module to build: %w", err)
		}
	}
	err := o.compile(ctx, scratch)
	if errors.Is(err, ErrNoToolchain) {
		return fmt.Errorf("%w: install Go or set %s to a folder with %s, %s and %s", err, EnvDir, etcd, apiServer, kubectl)
	}
	if err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	// The go command names etcd after its folder.
	if err := os.Rename(filepath.Join(scratch, "server"), filepath.Join(scratch, etcd)); err != nil {
		return fmt.Errorf("rename etcd: %w", err)
	}
	return nil
}

// compile runs `go list` to download the sources and to count the stale packages, whose names `go build -v` prints.
func (o ProgramOptions) compile(ctx context.Context, scratch string) error {
	env := []string{
		"GOWORK=off", "GO111MODULE=on", "GOFLAGS=-mod=readonly",
		"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH,
	}
	common := append(buildFlags(kubernetesVersion()),
		"go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl")
	stale, built, downloads := 0, 0, 0
	listed := func(line string) {
		if isPackage(line) {
			stale++
		} else if strings.HasPrefix(line, "go: downloading ") {
			downloads++
			o.display.show("control plane: downloading the sources, %d modules", downloads)
		}
	}
	compiled := func(line string) {
		if isPackage(line) && built < stale {
			built++
		}
		o.display.show("control plane "+kubernetesVersion()+": %d of %d packages", built, stale)
	}
	o.display.show("control plane: looking up the sources")
	list := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, common...)
	if err := goCommand(ctx, scratch, env, listed, list...); err != nil {
		return err
	}
	build := append([]string{"build", "-v", "-o", scratch + string(filepath.Separator)}, common...)
	return goCommand(ctx, scratch, env, compiled, build...)
}
