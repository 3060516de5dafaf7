package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Names below pkiDir.
const (
	pkiDir            = "pki"
	servingCert       = "apiserver.crt"
	servingKey        = "apiserver.key"
	serviceAccountKey = "service-account.key"
	// adminToken is in the format of kube-apiserver --token-auth-file.
	adminToken = "token.csv"
)

const (
	// lifetime is long, because nothing renews the certificate.
	lifetime = 10 * 365 * 24 * time.Hour

	serviceRange = "10.96.0.0/24"
	// serviceAddress is the address of the Service kubernetes.
	serviceAddress = "10.96.0.1"

	// cluster is the name in the kubeconfig. The API server grants all permissions to adminGroup.
	cluster    = "local"
	adminUser  = "admin"
	adminGroup = "system:masters"
)

// writeCredentials writes the kubeconfig of the administrator for an API server at a host and port. It creates
// missing credentials, and keeps existing ones, so that earlier kubeconfigs stay valid.
func (d dataDir) writeCredentials(host, port string) error {
	if _, err := os.Stat(d.path(pkiDir, adminToken)); err != nil {
		if err := d.createCredentials(host); err != nil {
			return fmt.Errorf("create credentials: %w", err)
		}
	}
	authority, err := os.ReadFile(d.path(pkiDir, servingCert))
	text, errToken := os.ReadFile(d.path(pkiDir, adminToken))
	token, _, found := strings.Cut(string(text), ",")
	switch {
	case errToken == nil && !found: // files may be empty if the machine crashed after they were written
		errToken = fmt.Errorf("%s has no token", d.path(pkiDir, adminToken))
	case err == nil:
		err = d.checkCertificate()
	}
	if err := errors.Join(err, errToken); err != nil {
		return fmt.Errorf("load credentials: %w (remove %s to create new ones)", err, d.path(pkiDir))
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server: "https://" + net.JoinHostPort(host, port), CertificateAuthorityData: authority,
	}
	config.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: adminUser}
	config.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*config, d.kubeconfig()); err != nil { // for its owner only
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// checkCertificate returns why no client would trust the API server, if that is so.
func (d dataDir) checkCertificate() error {
	pair, err := tls.LoadX509KeyPair(d.path(pkiDir, servingCert), d.path(pkiDir, servingKey))
	if err != nil {
		return fmt.Errorf("%s: %w", d.path(pkiDir, servingCert), err)
	}
	if now := time.Now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("%s is valid from %s to %s, and it is %s", d.path(pkiDir, servingCert),
			pair.Leaf.NotBefore.Format(time.DateOnly), pair.Leaf.NotAfter.Format(time.DateOnly), now.Format(time.DateOnly))
	}
	return nil
}

// createCredentials writes all files below pkiDir, or none: it fills another folder and renames it. The
// certificate is also valid for host.
func (d dataDir) createCredentials(host string) error {
	certificate, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host:         host,
		AlternateDNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		AlternateIPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceAddress)},
		MaxAge:       lifetime,
	})
	if err != nil {
		return err
	}
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM()
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
		servingCert: certificate, servingKey: key, serviceAccountKey: accounts,
		adminToken: fmt.Appendf(nil, "%s,%s,%s,%s\n", rand.Text(), adminUser, adminUser, adminGroup),
	} {
		if err := os.WriteFile(filepath.Join(scratch, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(d.path(pkiDir)); err != nil {
		return err
	}
	return os.Rename(scratch, d.path(pkiDir))
}

// Prepare writes pki/ and the kubeconfig of the administrator for a kube-apiserver that runs elsewhere, such as in
// a container, at port 6443 of a host. Its certificate is also valid for loopback. Existing credentials are kept.
func Prepare(dir, host string) error {
	data, err := openDataDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	return data.writeCredentials(host, "6443")
}

// tokenLifetime is long, because tokens are renewed only when the services start again.
const tokenLifetime = 365 * 24 * time.Hour

// Account returns a copy of the administrator's kubeconfig with a token for a service account instead.
func Account(ctx context.Context, administrator *clientcmdapi.Config, namespace, name string) (*clientcmdapi.Config,
	error,
) {
	config, err := ClientConfig(administrator)
	if err != nil {
		return nil, err
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the administrator's kubeconfig: %w", err)
	}
	seconds := int64(tokenLifetime / time.Second)
	token, err := client.ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s/%s: %w", namespace, name, err)
	}
	own := administrator.DeepCopy()
	current := own.Contexts[own.CurrentContext]
	own.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}}
	current.AuthInfo = name
	return own, nil
}

// At returns a copy of a kubeconfig with another URL of the API server.
func At(config *clientcmdapi.Config, server string) *clientcmdapi.Config {
	moved := config.DeepCopy()
	moved.Clusters[moved.Contexts[moved.CurrentContext].Cluster].Server = server
	return moved
}

// ClientConfig returns the client configuration of a kubeconfig.
func ClientConfig(config *clientcmdapi.Config) (*rest.Config, error) {
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig: %w", err)
	}
	return client, nil
}
