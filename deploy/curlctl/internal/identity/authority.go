package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	// caLifetime and serverLifetime are the validity of certificates. The server certificate is renewed in its
	// last third.
	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 2 * 365 * 24 * time.Hour
	// backdated is the tolerance for clocks that are behind.
	backdated = 5 * time.Minute
	// maxCommonName is RFC 5280's ub-common-name.
	maxCommonName = 64
)

// newAuthority returns a self-signed CA certificate for a key.
func newAuthority(key []byte, now time.Time) ([]byte, error) {
	return sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "curl-me-that NATS CA"},
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, key, nil, now)
}

// newServer returns a new server certificate for hosts, with its key.
func newServer(ca *tls.Certificate, hosts []string, now time.Time) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: hosts[0]},
		NotAfter: now.Add(serverLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
		// A server of a cluster is also a client of the others.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(hosts[0]) > maxCommonName {
		template.Subject.CommonName = "nats"
	}
	if ca.Leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.Leaf.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if key, err = keyutil.MakeEllipticPrivateKeyPEM(); err == nil {
		cert, err = sign(template, key, ca, now)
	}
	return cert, key, err
}

// sign makes a certificate for a key. Without an authority it is self-signed.
func sign(template *x509.Certificate, key []byte, by *tls.Certificate, now time.Time) ([]byte, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	secret, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("its key is invalid: %w", ErrUnusable)
	}
	template.NotBefore = now.Add(-backdated)
	parent, signer := template, parsed
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, secret.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// parse decodes a certificate and its key.
func parse(cert, key []byte) (*tls.Certificate, error) {
	if block, _ := pem.Decode(cert); block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("it holds no certificate: %w", ErrUnusable)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("its certificate or key is invalid: %w (%w)", ErrUnusable, err)
	}
	return &pair, nil
}

// fits reports whether a server certificate is signed by the authority, valid for exactly these hosts, and not
// due for renewal.
func fits(ca *tls.Certificate, cert, key []byte, hosts []string, now time.Time) bool {
	pair, err := parse(cert, key)
	if err != nil || pair.Leaf.CheckSignatureFrom(ca.Leaf) != nil {
		return false
	}
	have := pair.Leaf
	life := have.NotAfter.Sub(have.NotBefore)
	if have.NotAfter.Sub(now) < life/3 && have.NotAfter.Before(ca.Leaf.NotAfter) {
		return false
	}
	denied := func(host string) bool { return have.VerifyHostname(host) != nil }
	return len(hosts) == len(have.DNSNames)+len(have.IPAddresses) && !slices.ContainsFunc(hosts, denied)
}
