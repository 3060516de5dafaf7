package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"
)

// Digest replaces text that is only compared, which saves memory: keeper caches several per Watcher.
type Digest [16]byte

// DigestOf returns the digest of a value whose encoding has a stable order.
func DigestOf(parts ...any) Digest {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(parts); err != nil {
		return Digest{} // impossible for maps, text and times
	}
	return Digest(sum.Sum(nil)[:len(Digest{})])
}

// Fields are the names of the fields of a ConfigMap, by section.
type Fields struct{ Data, BinaryData, Labels, Annotations, Owners iter.Seq[string] }

// Digest returns the digest of the sets of names.
func (f Fields) Digest() Digest {
	return DigestOf(slices.Sorted(f.Data), slices.Sorted(f.BinaryData), slices.Sorted(f.Labels),
		slices.Sorted(f.Annotations), slices.Sorted(f.Owners))
}

// ParseDigest parses a digest (zero if the text is invalid).
func ParseDigest(text string) (d Digest) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(d) {
		d = Digest(raw)
	}
	return d
}

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }
