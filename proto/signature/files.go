package signature

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"
)

// Names of the files with the watcher's seed, and with the public keys that writer and fetchers
// trust: the current one and the previous one.
const (
	SeedFile = "signing.nk"
	KeysFile = "signing.pub"
)

// WriteFiles creates a signing key in a folder, unless it has a valid one, and returns the paths of
// the seed and of the public keys.
func WriteFiles(dir string) (seedFile, keysFile string, err error) {
	seedFile, keysFile = filepath.Join(dir, SeedFile), filepath.Join(dir, KeysFile)
	_, noSeed := LoadSigner(seedFile)
	_, noKeys := LoadVerifier(keysFile)
	if noSeed == nil && noKeys == nil {
		return seedFile, keysFile, nil
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", fmt.Errorf("create signing key: %w", err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return "", "", fmt.Errorf("create signing key: %w", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return "", "", fmt.Errorf("create signing key: %w", err)
	}
	// The seed is written last: if the process ends before, the next one creates both files again.
	if err := os.Remove(seedFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	if err := os.WriteFile(keysFile, []byte(public), 0o600); err != nil {
		return "", "", err
	}
	return seedFile, keysFile, os.WriteFile(seedFile, seed, 0o600)
}
