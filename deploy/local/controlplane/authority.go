package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/util/keyutil"
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

// authority signs the certificates of one control plane; the zero value lets a
// certificate sign itself.
type authority struct {
	certificate *x509.Certificate
	pem         []byte
	key         crypto.PrivateKey
}

// openAuthority loads the certificates of an earlier run, so that what it signed
// stays valid, or makes new ones for an API server that is known by the hosts, too.
func openAuthority(d dataDir, hosts ...string) (*authority, error) {
	if _, err := os.Stat(d.path(pkiDir)); err != nil {
		if err := createPKI(d, hosts...); err != nil {
			return nil, fmt.Errorf("create certificates: %w", err)
		}
	}
	loaded, err := loadAuthority(d)
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w; remove %s to have new ones made", err, d.path(pkiDir))
	}
	return loaded, nil
}

func loadAuthority(d dataDir) (*authority, error) {
	certificate, err := os.ReadFile(d.path(pkiDir, authorityCert))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(d.path(pkiDir, authorityKey))
	if err != nil {
		return nil, err
	}
	return parseAuthority(certificate, key)
}

// parseAuthority reads PEM.
func parseAuthority(certificate, key []byte) (*authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return &authority{certificate: pair.Leaf, pem: certificate, key: pair.PrivateKey}, nil
}

// issue makes a key and signs a certificate for it, both in PEM. The template
// has the subject and the use; the rest is filled in.
func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	template.NotBefore = time.Now().Add(-clockSkew)
	template.NotAfter = time.Now().Add(lifetime)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}
