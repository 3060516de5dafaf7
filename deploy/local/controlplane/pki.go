package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

const (
	// lifetime is long, since nothing renews the certificates.
	lifetime = 10 * 365 * 24 * time.Hour
	// clockSkew accepts a clock that was set back a little.
	clockSkew = time.Hour

	serviceRange = "10.96.0.0/24"
	// serviceAddress is the address of the Service kubernetes.
	serviceAddress = "10.96.0.1"

	// cluster is the name in the kubeconfig. The API server grants all rights to the group.
	cluster    = "local"
	adminUser  = "admin"
	adminGroup = "system:masters"
)

// authority signs the certificates of one control plane.
type authority struct {
	certificate *x509.Certificate
	key         crypto.PrivateKey
	pem         []byte
}

// openAuthority loads the certificates of an earlier run, so that its kubeconfigs stay
// valid, or creates them for an API server with these hosts, too.
func openAuthority(d dataDir, hosts ...string) (*authority, error) {
	if _, err := os.Stat(d.path(pkiDir)); err != nil {
		if err := createPKI(d, hosts...); err != nil {
			return nil, fmt.Errorf("create certificates: %w", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(d.path(pkiDir, authorityCert), d.path(pkiDir, authorityKey))
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w (remove %s to create new ones)", err, d.path(pkiDir))
	}
	block := &pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}
	return &authority{certificate: pair.Leaf, key: pair.PrivateKey, pem: pem.EncodeToMemory(block)}, nil
}

// createPKI writes all certificates and keys, or none: it fills another folder and
// renames it.
func createPKI(d dataDir, hosts ...string) error {
	root, rootKey, err := (&authority{}).issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "curl-me-that local control plane"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(root, rootKey)
	if err != nil {
		return err
	}
	serving, key, err := (&authority{certificate: pair.Leaf, key: pair.PrivateKey}).issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    append([]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, hosts...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceAddress)},
	})
	if err != nil {
		return err
	}
	tokens, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	scratch := d.path(pkiDir + ".new")
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		authorityCert: root, authorityKey: rootKey, servingCert: serving, servingKey: key, serviceAccountKey: tokens,
	} {
		if err := os.WriteFile(filepath.Join(scratch, name), content, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(scratch, d.path(pkiDir))
}

// issue creates a key and a certificate from a template, both in PEM. With the zero authority, the
// certificate is self-signed.
func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-clockSkew), time.Now().Add(lifetime)
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

// writeKubeconfig writes the kubeconfig of the administrator with its certificates, so
// that it can be copied.
func (a *authority) writeKubeconfig(path, server string) error {
	certificate, key, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: adminUser, Organization: []string{adminGroup}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("make the client certificate of the administrator: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	config.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: adminUser}
	config.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*config, path); err != nil { // for its owner only
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// External is a kube-apiserver that is started elsewhere, such as in a container.
type External struct {
	// Dir gets pki/ and the kubeconfig of the administrator. Existing keys are kept.
	Dir string
	// Host is the name for clients, in addition to loopback.
	Host string
	// Port is where it listens.
	Port string
}

// Prepare writes the missing files.
func (e External) Prepare() error {
	data, err := openDataDir(e.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = data.close() }()
	authority, err := openAuthority(data, e.Host)
	if err != nil {
		return err
	}
	return authority.writeKubeconfig(e.Kubeconfig(), "https://"+net.JoinHostPort(e.Host, e.Port))
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (e External) Kubeconfig() string { return filepath.Join(e.Dir, "kubeconfig") }
