package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"os"
)

// Names below pkiDir.
const (
	pkiDir            = "pki"
	authorityCert     = "ca.crt"
	authorityKey      = "ca.key"
	servingCert       = "apiserver.crt"
	servingKey        = "apiserver.key"
	serviceAccountKey = "service-account.key"
)

// authority signs the certificates of one control plane.
type authority struct {
	certificate *x509.Certificate
	pem         []byte
	key         *ecdsa.PrivateKey
}

// openAuthority loads the certificates of an earlier run, so that what it signed
// stays valid, or makes new ones for an API server that is known by the hosts, too.
func openAuthority(h home, hosts ...string) (*authority, error) {
	if _, err := os.Stat(h.path(pkiDir)); err != nil {
		if err := createPKI(h, hosts...); err != nil {
			return nil, fmt.Errorf("create certificates: %w", err)
		}
	}
	loaded, err := loadAuthority(h)
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w; remove %s to have new ones made", err, h.path(pkiDir))
	}
	return loaded, nil
}

func loadAuthority(h home) (*authority, error) {
	certificatePEM, err := os.ReadFile(h.path(pkiDir, authorityCert))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(h.path(pkiDir, authorityKey))
	if err != nil {
		return nil, err
	}
	certificate, err := parseCertificate(certificatePEM)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", authorityCert, err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", authorityKey, err)
	}
	return &authority{certificate: certificate, pem: certificatePEM, key: key}, nil
}

// issue makes a key and signs a certificate for it, both in PEM. The template
// has the subject and the use; the rest is filled in.
func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if certificate, err = sign(template, a.certificate, private, a.key); err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return certificate, key, err
}

// pool trusts this authority only.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	return serial, nil
}
