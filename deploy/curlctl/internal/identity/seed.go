package identity

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
)

// newSeed returns a new seed, and its public key.
func newSeed() (seed []byte, public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, "", fmt.Errorf("make NKey: %w", err)
	}
	defer pair.Wipe()
	if seed, err = pair.Seed(); err != nil {
		return nil, "", fmt.Errorf("make NKey: %w", err)
	}
	public, err = pair.PublicKey()
	return append(bytes.Clone(seed), '\n'), public, err
}

// publicKey returns the public key of a seed.
func publicKey(seed []byte) (string, error) {
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return "", fmt.Errorf("it holds no NKey seed: %w", ErrUnusable)
	}
	defer pair.Wipe()
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("it holds no seed of a user: %w", ErrUnusable)
	}
	return public, nil
}

// variables returns the file that accounts.conf includes: the public key of
// each identity, and for operators the subject under which only they
// else, go on record.
func variables(keys map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString("# Made by `curlctl identities`: the public key of each identity of accounts.conf.\n")
	for _, name := range identityNames() {
		fmt.Fprintf(&b, "NKEY_%s: %q\n", strings.ToUpper(name), keys[name])
	}
	for _, name := range audited() {
		fmt.Fprintf(&b, "AUDIT_%s: %q\n", strings.ToUpper(name), "curl.record.*."+keys[name]+".>")
	}
	return b.Bytes()
}

// audited are the identities that go on record with what they do.
func audited() []string { return []string{doctor.Replayer, doctor.Admin} }
