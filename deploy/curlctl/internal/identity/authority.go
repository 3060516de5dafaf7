package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	// caLifetime and serverLifetime are the validity of certificates. The server's is
	// renewed in the last third.
	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 2 * 365 * 24 * time.Hour
	// backdated tolerates clocks that are behind.
	backdated = 5 * time.Minute
)

// authority is a certificate with its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority returns a new certificate authority and its files. It uses the existing key of
// an interrupted run.
func newAuthority(existing []byte, now time.Time) (a authority, cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "curl-me-that NATS CA"},
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	secret, err := parseKey(existing)
	if existing == nil {
		secret, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return authority{}, nil, nil, err
	}
	return sign(template, secret, nil, now)
}

// server returns the files of a new certificate for hosts.
func (a *authority) server(hosts []string, now time.Time) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: hosts[0]},
		NotAfter: now.Add(serverLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
		// Routes are servers and clients.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(hosts[0]) > maxCommonName {
		template.Subject.CommonName = "nats"
	}
	if a.cert.NotAfter.Before(template.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	_, cert, key, err = sign(template, secret, a, now)
	return cert, key, err
}

// maxCommonName is RFC 5280's ub-common-name.
const maxCommonName = 64

// sign makes a certificate of a key (ECDSA P-256), self-signed without an authority.
func sign(
	template *x509.Certificate, secret *ecdsa.PrivateKey, by *authority, now time.Time,
) (made authority, cert, key []byte, err error) {
	fail := func(err error) (authority, []byte, []byte, error) {
		return authority{}, nil, nil, fmt.Errorf("make certificate: %w", err)
	}
	made.key = secret
	template.NotBefore = now.Add(-backdated)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return fail(err)
	}
	parent := authority{cert: template, key: made.key}
	if by != nil {
		parent = *by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, made.key.Public(), parent.key)
	if err != nil {
		return fail(err)
	}
	if made.cert, err = x509.ParseCertificate(der); err != nil {
		return fail(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return fail(err)
	}
	return made, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), nil
}

// parse decodes a certificate and its key.
func parse(cert, key []byte) (authority, error) {
	if block, _ := pem.Decode(cert); block == nil || block.Type != "CERTIFICATE" {
		return authority{}, fmt.Errorf("it holds no certificate: %w", ErrUnusable)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return authority{}, fmt.Errorf("its certificate or key is invalid: %w (%w)", ErrUnusable, err)
	}
	private, err := parseKey(key)
	return authority{cert: pair.Leaf, key: private}, err
}

func parseKey(key []byte) (*ecdsa.PrivateKey, error) {
	secret, err := keyutil.ParsePrivateKeyPEM(key)
	private, ok := secret.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("it has no ECDSA key: %w", ErrUnusable)
	}
	return private, nil
}

// fits reports whether a server certificate is signed by this authority, valid for these
// hosts, and not due for renewal.
func (a *authority) fits(cert, key []byte, hosts []string, now time.Time) bool {
	have, err := parse(cert, key)
	if err != nil || have.cert.CheckSignatureFrom(a.cert) != nil {
		return false
	}
	life := have.cert.NotAfter.Sub(have.cert.NotBefore)
	if have.cert.NotAfter.Sub(now) < life/3 && have.cert.NotAfter.Before(a.cert.NotAfter) {
		return false
	}
	denied := func(host string) bool { return have.cert.VerifyHostname(host) != nil }
	return len(hosts) == len(have.cert.DNSNames)+len(have.cert.IPAddresses) && !slices.ContainsFunc(hosts, denied)
}
