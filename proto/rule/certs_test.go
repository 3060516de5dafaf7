package rule_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/rule"
)

// ca is a bundle of two authorities.
var ca = certificate(0) + "\n" + certificate(0)

// certificate returns a self-signed certificate in PEM, with so many further names of a type that few know.
func certificate(names int) string {
	name := pkix.RDNSequence{
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "kv8s"}},
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "curl-me-that"}},
	}
	other := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 2}, Value: "a"}
	name = append(name, slices.Repeat(pkix.RDNSequence{{other}}, names)...)
	subject, err := asn1.Marshal(name)
	if err != nil {
		panic(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), RawSubject: subject, NotBefore: time.Now(), NotAfter: time.Now().AddDate(20, 0, 0),
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestATextHasAtMostAThousandCertificates(t *testing.T) {
	e, set := &rule.Evaluator{MaxBody: 4 << 20}, rule.Set{Expect: []string{"size(certs(body)) > 0"}}
	_, cause := e.Evaluate(t.Context(), "team-a", set, []byte(strings.Repeat(ca+"\n", 501)), 0).Failed()
	if cause != rule.Costly {
		t.Errorf("1,002 certificates are %s", cause)
	}
}
