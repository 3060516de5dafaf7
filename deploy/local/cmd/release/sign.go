package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// signChart writes the provenance of a packaged chart beside it, as `helm verify` reads
// it: its Chart.yaml, which is at path, and its digest, signed by gpg. helm itself signs
// only what it packs, and that has other digests each time.
// See https://helm.sh/docs/topics/provenance/.
func (r *release) signChart(ctx context.Context, name, path string) error {
	if r.key == "" {
		return nil
	}
	metadata, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum, err := r.checksum(name)
	if err != nil {
		return err
	}
	message := fmt.Appendf(metadata, "\n...\nfiles:\n  %s: sha256:%s\n", name, sum)
	cmd := exec.CommandContext(ctx, "gpg", "--batch", "--local-user", r.key, "--clearsign", "--output", filepath.Join(r.out, name+".prov"))
	cmd.Stdin = bytes.NewReader(message)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("--key: gpg cannot sign the chart as %q: %w: %s", r.key, err, bytes.TrimSpace(text))
	}
	return nil
}
