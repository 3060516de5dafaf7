package signature

import (
	"crypto/ed25519"
	"encoding/binary"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// domain separates these signatures from all others that a key may make.
const domain = "curl-me-that/want/1"

// Sign replaces the signature of a want by one of what it asks for now.
func (s *Signer) Sign(w *v1.Want) {
	if s != nil {
		w.Signature = ed25519.Sign(s.key, decisive(w))
	}
}

// Verify returns nil if a holder of a trusted key has signed the want as it is, and
// else ErrNoKeys, ErrUnsigned or ErrUntrusted.
func (v *Verifier) Verify(w *v1.Want) error {
	switch {
	case v.file == nil:
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

// decisive returns what is signed: all of a want that decides whether and what is
// written, each field after its length, so that no two wants have the same. A
// field that is added to wants and decides goes to the end, if it is set.
func decisive(w *v1.Want) []byte {
	readFirst := ""
	if w.GetReadFirst() {
		readFirst = "read first"
	}
	fields := [...]string{
		domain,
		w.GetNamespace(), w.GetName(), w.GetKey(), w.GetUid(), w.GetResourceVersion(),
		w.GetUrl(), w.GetNow(), w.GetSha256(), w.GetStatus(), w.GetDrift(), readFirst,
	}
	size := 3 * binary.MaxVarintLen64
	for _, field := range fields {
		size += binary.MaxVarintLen32 + len(field)
	}
	b := make([]byte, 0, size)
	for _, field := range fields {
		b = binary.AppendUvarint(b, uint64(len(field)))
		b = append(b, field...)
	}
	b = binary.AppendVarint(b, w.GetEpoch())
	b = binary.AppendVarint(b, w.GetRefresh().GetSeconds())
	return binary.AppendVarint(b, int64(w.GetRefresh().GetNanos()))
}
