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
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/process/reload"
	"github.com/kv8s/curl-me-that/proto/rule"
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
func (v *Verifier) Run(ctx context.Context, report func(path string, err error)) {
	if v != nil {
		reload.Run(ctx, nil, func() { v.file.Poll(report) })
	}
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

// domain separates these signatures from all other uses of the key.
const domain = "curl-me-that/want/1"

// Sign replaces the signature of a want.
func (s *Signer) Sign(w *v1.Want) {
	if s != nil {
		w.Signature = ed25519.Sign(s.key, decisive(w))
	}
}

// Verify returns nil if a trusted key signed the want as it is, or else ErrNoKeys, ErrUnsigned or
// ErrUntrusted.
func (v *Verifier) Verify(w *v1.Want) error {
	switch {
	case v == nil:
		return ErrNoKeys
	case len(w.GetSignature()) == 0:
		return ErrUnsigned
	}
	signed := decisive(w)
	for _, key := range v.file.Value() {
		if ed25519.Verify(key, signed, w.GetSignature()) {
			return nil
		}
	}
	return ErrUntrusted
}

// decisive returns the signed bytes: every field that affects whether and what is written, each
// preceded by its length, so that two different wants never give the same bytes. A new field that
// affects a write is appended if it is set.
func decisive(w *v1.Want) []byte {
	readFirst := ""
	if w.GetReadFirst() {
		readFirst = "read first"
	}
	fields := [...]string{
		domain,
		w.GetNamespace(), w.GetName(), w.GetKey(), w.GetUid(), w.GetResourceVersion(),
		w.GetUrl(), w.GetNow(), w.GetSha256(), w.GetStatus(), w.GetFingerprint(), readFirst,
	}
	var b []byte
	for _, field := range fields {
		b = binary.AppendUvarint(b, uint64(len(field)))
		b = append(b, field...)
	}
	b = binary.AppendVarint(b, w.GetEpoch())
	b = binary.AppendVarint(b, w.GetRefresh().GetSeconds())
	b = binary.AppendVarint(b, int64(w.GetRefresh().GetNanos()))
	if rules := rule.SetOf(w).Hash(); rules != "" || w.GetHeldSize() != 0 {
		b = append(b, rules...)
		b = binary.AppendVarint(b, w.GetHeldSize())
	}
	return b
}

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
