package signature_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// must returns value, and panics on an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// keys returns a new signer, and the file with its public key.
func keys(tb testing.TB) (*signature.Signer, string) {
	tb.Helper()
	seed, public, err := signature.WriteFiles(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return must(signature.LoadSigner(seed)), public
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func want() *v1.Want {
	return &v1.Want{
		Namespace: "ns", Name: "cm", Key: "k", Uid: "uid", ResourceVersion: "7", Url: "https://example.com/?a=b",
		Refresh: durationpb.New(90e9), Now: "1", Sha256: strings.Repeat("0", 64), Epoch: 3, Status: "{}", Fingerprint: "none",
	}
}

// another returns a different text, of the same length if possible, so that its length does not reveal
// the change.
func another(text string) string {
	if text == "" {
		return "x"
	}
	return "~" + text[1:]
}

// unsigned lists the fields that others may set, because they do not affect a write. Every new field
// must be signed or listed here.
var unsigned = []protoreflect.Name{"cause", "cached", "observed_at", "asked_at", "installation", "signature"}

func TestEveryDecisiveFieldIsSigned(t *testing.T) {
	signer, public := keys(t)
	verifier := must(signature.LoadVerifier(public))
	fields := (&v1.Want{}).ProtoReflect().Descriptor().Fields()
	free := map[protoreflect.Name]bool{}
	for _, name := range unsigned {
		free[name] = true
	}
	for i := range fields.Len() {
		field := fields.Get(i)
		w := want()
		signer.Sign(w)
		if err := verifier.Verify(w); err != nil {
			t.Fatal(err)
		}
		m := w.ProtoReflect()
		switch {
		case field.IsList():
			m.Mutable(field).List().Append(protoreflect.ValueOfString("true"))
		default:
			change(t, m, field)
		}
		if err := verifier.Verify(w); free[field.Name()] != (err == nil) && field.Kind() != protoreflect.BytesKind {
			t.Errorf("%s changed: %v", field.Name(), err)
		}
	}
}

// change changes the value of a field that is not a list.
func change(t *testing.T, m protoreflect.Message, field protoreflect.FieldDescriptor) {
	t.Helper()
	switch field.Kind() {
	case protoreflect.StringKind:
		m.Set(field, protoreflect.ValueOfString(another(m.Get(field).String())))
	case protoreflect.BoolKind:
		m.Set(field, protoreflect.ValueOfBool(!m.Get(field).Bool()))
	case protoreflect.Int64Kind:
		m.Set(field, protoreflect.ValueOfInt64(m.Get(field).Int()+1))
	case protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(m.Get(field).Enum()+1))
	case protoreflect.BytesKind:
	case protoreflect.MessageKind:
		if m.Has(field) {
			m.Clear(field)
		} else {
			m.Set(field, m.NewField(field))
		}
	default:
		t.Fatalf("%s: this test cannot change a field of this kind", field.Name())
	}
}

func TestDifferentWantsHaveDifferentSignatures(t *testing.T) {
	signer, public := keys(t)
	verifier := must(signature.LoadVerifier(public))
	w := want()
	w.Name, w.Key = "cm", "kk"
	signer.Sign(w)
	w.Name, w.Key = "cmk", "k"
	if err := verifier.Verify(w); !errors.Is(err, signature.ErrUntrusted) {
		t.Fatalf("the signature holds after text moved to another field: %v", err)
	}
}

func TestTwoKeysAreTrustedDuringARotation(t *testing.T) {
	first, firstKey := keys(t)
	second, secondKey := keys(t)
	third, _ := keys(t)
	both := string(must(os.ReadFile(firstKey))) + "\n" + string(must(os.ReadFile(secondKey))) + "\n"
	verifier := must(signature.LoadVerifier(write(t, both)))
	none, unsigned := must(signature.LoadVerifier("")), must(signature.LoadSigner(""))
	for name, c := range map[string]struct {
		by       *signature.Signer
		verifier *signature.Verifier
		want     error
	}{
		"first":    {first, verifier, nil},
		"second":   {second, verifier, nil},
		"third":    {third, verifier, signature.ErrUntrusted},
		"unsigned": {unsigned, verifier, signature.ErrUnsigned},
		"no keys":  {first, none, signature.ErrNoKeys},
	} {
		w := want()
		c.by.Sign(w)
		if err := c.verifier.Verify(w); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvalidFiles(t *testing.T) {
	dir := t.TempDir()
	seed, public, err := signature.WriteFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	key := string(must(os.ReadFile(public)))
	secret := string(must(os.ReadFile(seed)))
	account := must(must(nkeys.CreateAccount()).Seed())
	for name, text := range map[string]string{"empty": "", "junk": "junk", "public": key, "account": string(account)} {
		if _, err := signature.LoadSigner(write(t, text)); err == nil || !strings.Contains(err.Error(), "NKey user seed") {
			t.Errorf("seed, %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"none": "\n", "three": key + "\n" + key + "\n" + key, "secret": secret,
		"words": "not a key",
	} {
		_, err := signature.LoadVerifier(write(t, text))
		if err == nil || !strings.Contains(err.Error(), "NKey user public keys") || strings.Contains(err.Error(), secret) {
			t.Errorf("public keys, %s: %v", name, err)
		}
	}
	_, noSeed := signature.LoadSigner(filepath.Join(dir, "missing"))
	_, noKeys := signature.LoadVerifier(filepath.Join(dir, "missing"))
	if !errors.Is(noSeed, os.ErrNotExist) || !errors.Is(noKeys, os.ErrNotExist) {
		t.Errorf("missing: %v; %v", noSeed, noKeys)
	}
	if _, _, err := signature.WriteFiles(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}

func TestWriteFilesKeepsAMatchingKey(t *testing.T) {
	dir := t.TempDir()
	seedFile, publicFile, err := signature.WriteFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	seed := must(os.ReadFile(seedFile))
	if _, _, err := signature.WriteFiles(dir); err != nil || string(must(os.ReadFile(seedFile))) != string(seed) {
		t.Errorf("the key was replaced: %v", err)
	}
	for _, missing := range []string{publicFile, seedFile} {
		if err := os.Remove(missing); err != nil {
			t.Fatal(err)
		}
		if _, _, err := signature.WriteFiles(dir); err != nil {
			t.Fatal(err)
		}
		w := want()
		must(signature.LoadSigner(seedFile)).Sign(w)
		if err := must(signature.LoadVerifier(publicFile)).Verify(w); err != nil {
			t.Errorf("%s was missing: the keys do not match: %v", missing, err)
		}
	}
}
