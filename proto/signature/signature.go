// Package signature lets the writer verify that a want was published by the watcher.
//
// The writer receives a want as part of a result from a fetcher, and fetchers talk to untrusted
// servers. So the watcher signs every field that affects the write (Ed25519), the fetcher passes
// the want on unchanged, and the writer verifies it. On an invalid signature, the writer only reads
// the live object. A fetcher verifies the signature only before it sends credentials, because
// anybody who can set a timer can make NATS publish a want.
package signature

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nkeys"

	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// MaxKeys is the maximum number of trusted public keys: the current one, and the previous or next
// one.
const MaxKeys = 2

var (
	// ErrNoKeys means that no public key is known, so no signature can be verified.
	ErrNoKeys = errors.New("no public key to verify signatures with")
	// ErrUnsigned means that the want has no signature.
	ErrUnsigned = errors.New("the want is not signed")
	// ErrUntrusted means that the signature is not from a trusted key, or not for this want.
	ErrUntrusted = errors.New("the signature of the want was not made by a trusted key")
	// errNoSeed and errNoPublicKeys describe invalid files.
	errNoSeed       = errors.New("it holds no NKey user seed")
	errNoPublicKeys = fmt.Errorf("it must hold one to %d NKey user public keys, one per line", MaxKeys)
)

// Signer signs wants. A nil Signer leaves them unsigned.
type Signer struct{ key ed25519.PrivateKey }

// LoadSigner reads an NKey user seed from a file. Without a name it returns nil. The error names
// the file but contains nothing from it.
func LoadSigner(file string) (*Signer, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // a nil signer signs nothing
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	prefix, seed, err := nkeys.DecodeSeed(bytes.TrimSpace(text))
	if err != nil || prefix != nkeys.PrefixByteUser {
		return nil, fmt.Errorf("read %s: %w", file, errNoSeed)
	}
	return &Signer{key: ed25519.NewKeyFromSeed(seed)}, nil
}

// Verifier holds the trusted public keys. It is safe for concurrent use. A nil Verifier trusts none.
type Verifier struct {
	file *reload.File[[]ed25519.PublicKey]
}

// LoadVerifier reads NKey user public keys from a file, one per line and at most MaxKeys. Without a
// name it returns nil.
func LoadVerifier(file string) (*Verifier, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // a nil verifier trusts none
	}
	keys, err := reload.Open(file, parseKeys)
	if err != nil {
		return nil, err
	}
	return &Verifier{file: keys}, nil
}

// Run reloads the keys when the file changes, until ctx is done. After a change it calls report with
// the file and nil, or with the reason why the previous keys stay trusted.
func (v *Verifier) Run(ctx context.Context, report func(path string, err error)) error {
	if v != nil {
		reload.Run(ctx, nil, func() { v.file.Look(report) })
	}
	return nil
}

// parseKeys parses the content of a file of public keys.
func parseKeys(text []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for line := range bytes.FieldsSeq(text) {
		key, err := nkeys.Decode(nkeys.PrefixByteUser, line)
		if err != nil {
			return nil, errNoPublicKeys
		}
		keys = append(keys, ed25519.PublicKey(key))
	}
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, errNoPublicKeys
	}
	return keys, nil
}
