package assets

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/kv8s/curl-me-that/deploy/local/internal/gobuild"
)

// The module that pins the sources. Its files end in .txt since a folder with a
// go.mod can neither be embedded nor stay out of `go mod tidy`; its tool
// directives name the three programs. update.sh moves it to another version.
var (
	//go:embed go.mod.txt
	goMod []byte
	//go:embed go.sum.txt
	goSum []byte
)

var required = regexp.MustCompile(`\sk8s\.io/kubernetes (v\S+)`)

// kubernetesVersion reads the version from the module, the one place that has it.
func kubernetesVersion() string { return string(required.FindSubmatch(goMod)[1]) }

// buildFlags are those of the release builds as far as they matter here, without what
// debuggers read, which takes a fifth of the time. The API server hands its version to clients from the stamp.
func buildFlags(version string) []string {
	return []string{"-trimpath", gobuild.NoDWARF, "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + version}
}

// versionHash is different for each set of binaries: it changes with the
// sources, the way they are built, and the platform.
func versionHash() string {
	hash := sha256.New()
	hash.Write(goMod)
	hash.Write(goSum)
	for _, part := range append(buildFlags("version"), runtime.GOOS, runtime.GOARCH) {
		hash.Write([]byte(part + "\n"))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

func writeModule(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), goMod, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), goSum, 0o644)
}
