package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest stands for what is compared only. Several are held of each Watcher, in a
// third of the memory of their text.
type Digest [16]byte

// DigestOf returns the digest of what is encoded in a stable order.
func DigestOf(parts ...any) Digest {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(parts); err != nil {
		return Digest{} // maps, text and times can be encoded
	}
	return Digest(sum.Sum(nil)[:len(Digest{})])
}

// ParseDigest returns the digest whose text it is; the zero value: it is of none.
func ParseDigest(text string) (d Digest) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(d) {
		d = Digest(raw)
	}
	return d
}

// String returns the text of the digest, in hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }
