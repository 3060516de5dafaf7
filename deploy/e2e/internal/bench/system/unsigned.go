package system

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// unsigned takes the place of the source in which wants are signed and verified.
//
//go:embed unsigned.go.txt
var unsigned []byte

// signed is that source, below the checkout.
const signed = "proto/signature/want.go"

// BuildUnsigned builds watcher and writer as they are, but for signatures: the
// watcher makes none, the writer takes all wants. They go to dir, and the other
// programs of bin beside them, so that dir can be Options.Bin.
func BuildUnsigned(ctx context.Context, bin, dir string) error {
	source, err := filepath.Abs(signed)
	if err != nil {
		return fmt.Errorf("find the checkout: %w", err)
	}
	replacement, overlay := filepath.Join(dir, "want.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{source: replacement}})
	if err = errors.Join(err, os.WriteFile(replacement, unsigned, 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return fmt.Errorf("leave signatures out: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", dir+"/", "./watcher/cmd/watcher", "./writer/cmd/writer")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build without signatures, which works in the checkout only: %w: %s", err, text)
	}
	for _, name := range []string{"fetcher", "curlctl"} {
		path, err := filepath.Abs(filepath.Join(bin, name))
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			return fmt.Errorf("leave signatures out: %w", err)
		}
	}
	return nil
}
