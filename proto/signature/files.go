package signature

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Names of the files with the watcher's seed, and with the public keys that writer and fetchers
// trust: the current one and the previous one.
const (
	SeedFile = "signing.nk"
	KeysFile = "signing.pub"
)

// WriteFiles creates a signing key for a system that lives in one folder, unless there is one, and
// returns the paths of its seed and of its public keys.
func WriteFiles(dir string) (seedFile, keysFile string, err error) {
	seedFile, keysFile = filepath.Join(dir, SeedFile), filepath.Join(dir, KeysFile)
	if belong(seedFile, keysFile) {
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
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		return "", "", err
	}
	return seedFile, keysFile, os.WriteFile(keysFile, []byte(public), 0o600)
}

// belong reports whether seed and public key match. They do not if a process ended between the
// writes of the two files.
func belong(seedFile, keysFile string) bool {
	signer, err := LoadSigner(seedFile)
	if err != nil {
		return false
	}
	verifier, err := LoadVerifier(keysFile)
	if err != nil {
		return false
	}
	probe := new(v1.Want)
	signer.Sign(probe)
	return verifier.Verify(probe) == nil
}
