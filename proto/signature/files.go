package signature

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Names of the files with the seed by which the watcher signs wants, and with the public
// keys which writer and fetchers trust: the one of the seed, and the one before it.
const (
	SeedFile = "signing.nk"
	KeysFile = "signing.pub"
)

// WriteFiles makes a key for a system that lives in one folder, unless there is one, and
// returns the files with its seed and with its public key.
func WriteFiles(dir string) (seedFile, keysFile string, err error) {
	seedFile, keysFile = filepath.Join(dir, SeedFile), filepath.Join(dir, KeysFile)
	if belong(seedFile, keysFile) {
		return seedFile, keysFile, nil
	}
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
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		return "", "", err
	}
	return seedFile, keysFile, os.WriteFile(keysFile, []byte(public), 0o600)
}

// belong reports whether what the seed of one file signs is valid by the other, which it
// is not where a process has ended between the writes of both.
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
