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

func TestOnlyWholeCertificatesInPEMAndBlanksAreRead(t *testing.T) {
	one := certificate(0)
	lines := strings.SplitAfter(one, "\n")
	block, _ := pem.Decode([]byte(one))
	labelled := func(label string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
	}
	for want, bodies := range map[rule.Cause][]string{
		rule.Passed: {
			one, strings.TrimSpace(one), strings.ReplaceAll(one+one, "\n", "\r\n"), strings.Repeat(one, 100),
			"\n \t\n" + strings.ReplaceAll(one, "-\n", "- \n") + "\n\n" + one + "\n",
		},
		rule.BadCertificate: {
			one + one[:len(one)/2], strings.Join(lines[:len(lines)-2], ""), "-----BEGIN CERTIFICATE-----\n" + one,
			strings.Replace(one, "MII", "M!I", 1), labelled("CERTIFICATE", append(slices.Clone(block.Bytes), 0)),
		},
		rule.NotCertificates: {
			one + labelled("PRIVATE KEY", block.Bytes), labelled("X509 CERTIFICATE", block.Bytes), "Subject: a\n" + one,
			strings.ReplaceAll(one, "-----BEGIN", "  -----BEGIN"), "\ufeff" + one, "<pre>\n" + one + "</pre>\n",
			string(block.Bytes),
		},
		rule.False:    {"\n"},
		rule.TooLarge: {strings.Repeat(one, 1000)},
	} {
		for _, body := range bodies {
			if got := evaluate(body, "size(certs(body)) > 0", 0); got != want {
				t.Errorf("%.60q is %s, not %s", body, got, want)
			}
		}
	}
}

func TestATextHasAtMostAThousandCertificates(t *testing.T) {
	one := strings.Repeat(ca+"\n", 84)
	for text, want := range map[string]rule.Cause{
		"body": rule.Passed, "body + body + body + body + body + body": rule.Costly,
	} {
		if got := evaluate(one, "size(certs("+text+")) > 0", 0); got != want {
			t.Errorf("168 certificates in each body of %s are %s", text, got)
		}
	}
}
