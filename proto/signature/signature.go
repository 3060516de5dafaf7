// Package signature lets a writer know which wants the watcher has published.
//
// A want reaches the writer in a result, by way of a fetcher, which meets untrusted
// servers. The watcher signs what decides about the write (Ed25519), the fetcher
// passes that on as it is, and the writer verifies it. A want without a valid
// signature is worth nothing but a look at the live object. A fetcher verifies it only
// where credentials are to be sent: whoever may set a timer can have NATS publish a want.
package signature

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/kv8s/curl-me-that/proto/service/reload"
)

// MaxKeys is how many public keys are trusted at a time: the one in use, and the
// one before or after it.
const MaxKeys = 2

var (
	// ErrNoKeys is that no public key is known, so that no signature can be verified.
	ErrNoKeys = errors.New("no key to verify signatures with")
	// ErrUnsigned is that the want has no signature.
	ErrUnsigned = errors.New("want is not signed")
	// ErrUntrusted is that none of the trusted keys has made the signature for this want.
	ErrUntrusted = errors.New("signature of the want is by none of the trusted keys")
	// errNoSeed and errNoPublicKeys are about files.
	errNoSeed       = errors.New("it holds no NKey seed of a user")
	errNoPublicKeys = fmt.Errorf("it does not hold one or %d public NKeys of users, one a line", MaxKeys)
)

// Signer signs wants. A nil one leaves them unsigned.
type Signer struct{ key ed25519.PrivateKey }

// LoadSigner reads the NKey seed of a user from a file; without a name it returns
// nil. The error names the file and nothing of its content.
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

// Verifier knows the public keys to trust. It is safe for concurrent use.
type Verifier struct {
	// file has the keys; nil: none is trusted.
	file *reload.File[[]ed25519.PublicKey]
}

// LoadVerifier reads the public NKeys of users from a file, one a line and MaxKeys
// at most; without a name it returns a verifier that trusts none.
func LoadVerifier(file string) (*Verifier, error) {
	if file == "" {
		return &Verifier{}, nil
	}
	keys, err := reload.Open(file, parseKeys)
	if err != nil {
		return nil, err
	}
	return &Verifier{file: keys}, nil
}

// Run takes the keys anew whenever the file has others, until ctx is done. It looks at
// each tick; nil: every five seconds. It calls report with the file, and with nil for keys
// that it took, else with why those before stay trusted. A verifier that is nil, or has no
// file, waits.
func (v *Verifier) Run(ctx context.Context, ticks <-chan time.Time, report func(path string, err error)) error {
	if v == nil || v.file == nil {
		<-ctx.Done()
		return nil
	}
	reload.Run(ctx, ticks, func() { v.file.Look(report) })
	return nil
}

// parseKeys reads the public keys of a file.
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
