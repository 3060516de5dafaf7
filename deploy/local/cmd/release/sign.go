package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// keyFile is the public half of the key that signs, among the files of a release.
const keyFile = "signing-key.asc"

// nameKey names the key that signs in the chart's metadata, and writes its public half.
// See https://artifacthub.io/docs/topics/annotations/helm/.
func (r *release) nameKey(ctx context.Context, metadata []byte) ([]byte, error) {
	if r.key == "" {
		return metadata, nil
	}
	listed, err := exec.CommandContext(ctx, "gpg", "--batch", "--with-colons", "--list-keys", r.key).Output()
	if err != nil {
		return nil, fmt.Errorf("--key: gpg cannot list %q: %w", r.key, err)
	}
	fingerprint := fingerprintLine.FindSubmatch(listed)
	if fingerprint == nil {
		return nil, fmt.Errorf("--key: gpg lists %q without a fingerprint", r.key)
	}
	public, err := exec.CommandContext(ctx, "gpg", "--batch", "--armor", "--export", string(fingerprint[1])).Output()
	if err != nil {
		return nil, fmt.Errorf("--key: gpg cannot export %q: %w", r.key, err)
	}
	if err := r.write(keyFile, public); err != nil {
		return nil, err
	}
	return bytes.Replace(metadata, []byte("annotations:\n"), fmt.Appendf(nil,
		"annotations:\n  artifacthub.io/signKey: |\n    fingerprint: %s\n    url: https://%s/releases/download/%s/%s\n",
		fingerprint[1], repository, r.version, keyFile), 1), nil
}

// fingerprintLine is that of the key itself: those of its subkeys come later. See
// doc/DETAILS of GnuPG.
var fingerprintLine = regexp.MustCompile(`(?m)^fpr:.*:([0-9A-F]{40,64}):$`)
