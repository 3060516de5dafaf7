package controlplane

import (
	"fmt"
	"net/url"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The administrator belongs to the group that RBAC lets do everything.
const (
	adminUser  = "admin"
	adminGroup = "system:masters"
)

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string {
	return c.home.path("kubeconfig")
}

// UserKubeconfig writes a kubeconfig, readable by its owner only, with a client
// certificate for another user, and returns its path. The user may do what RBAC
// grants to the name and the groups; the API server adds system:authenticated. A
// second call with the same name replaces the file.
func (c *ControlPlane) UserKubeconfig(name string, groups ...string) (string, error) {
	path := c.home.path("users", url.PathEscape(name)+".kubeconfig")
	return path, c.writeKubeconfig(path, name, groups...)
}

func (c *ControlPlane) writeKubeconfig(path, user string, groups ...string) error {
	return c.authority.writeKubeconfig(path, c.server(), user, groups...)
}

// writeKubeconfig puts the certificates into the file, so that it can be copied.
func (a *authority) writeKubeconfig(path, server, user string, groups ...string) error {
	certificate, key, err := a.issue(clientTemplate(user, groups...))
	if err != nil {
		return fmt.Errorf("make a client certificate for %s: %w", user, err)
	}
	const cluster = "local"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	// WriteToFile creates the folder, and the file for its owner only.
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}

func (c *ControlPlane) server() string {
	return "https://" + loopback(c.port)
}
