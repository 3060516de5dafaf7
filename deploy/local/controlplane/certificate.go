package controlplane

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"time"
)

const (
	// lifetime is long, since nothing renews the certificates of a kept folder.
	lifetime = 10 * 365 * 24 * time.Hour
	// clockSkew lets a certificate be used on a clock that was set back a little.
	clockSkew = time.Hour

	serviceRange = "10.96.0.0/24"
	// serviceAddress is what the API server gives to the service kubernetes.
	serviceAddress = "10.96.0.1"
)

func authorityTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "curl-me-that local control plane"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
}

// servingTemplate is for loopback, the names that a cluster knows, and others.
func servingTemplate(hosts ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    append([]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, hosts...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceAddress)},
	}
}

// adminTemplate follows the API server's reading of a client certificate: the
// common name is the user, each organization a group.
func adminTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: adminUser, Organization: []string{adminGroup}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}
