package signature

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"
)

// WriteFiles makes a new key for a system that lives in one folder, and returns the
// files with its seed and with its public key. What was there is replaced.
func WriteFiles(dir string) (seedFile, keysFile string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", fmt.Errorf("make key for signatures: %w", err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return "", "", fmt.Errorf("make key for signatures: %w", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return "", "", fmt.Errorf("make key for signatures: %w", err)
	}
	seedFile, keysFile = filepath.Join(dir, "signing.nk"), filepath.Join(dir, "signing.pub")
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		return "", "", err
	}
	return seedFile, keysFile, os.WriteFile(keysFile, []byte(public), 0o600)
}
