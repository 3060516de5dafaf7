package signature

import (
	"crypto/ed25519"
	"encoding/binary"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

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
		w.GetUrl(), w.GetNow(), w.GetSha256(), w.GetStatus(), w.GetDrift(), readFirst,
	}
	var b []byte
	for _, field := range fields {
		b = binary.AppendUvarint(b, uint64(len(field)))
		b = append(b, field...)
	}
	b = binary.AppendVarint(b, w.GetEpoch())
	b = binary.AppendVarint(b, w.GetRefresh().GetSeconds())
	b = binary.AppendVarint(b, int64(w.GetRefresh().GetNanos()))
	if rules := rule.Of(w).Digest(); rules != "" || w.GetHeldSize() != 0 {
		b = append(b, rules...)
		b = binary.AppendVarint(b, w.GetHeldSize())
	}
	return b
}
