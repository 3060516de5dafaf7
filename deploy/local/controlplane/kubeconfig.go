package controlplane

import (
	"fmt"

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
	return c.data.path("kubeconfig")
}

// writeKubeconfig writes the kubeconfig of the administrator, with the certificates
// in it, so that it can be copied.
func (a *authority) writeKubeconfig(path, server string) error {
	certificate, key, err := a.issue(adminTemplate())
	if err != nil {
		return fmt.Errorf("make the client certificate of the administrator: %w", err)
	}
	const cluster = "local"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	config.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: adminUser}
	config.CurrentContext = cluster
	// WriteToFile creates the folder, and the file for its owner only.
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func (c *ControlPlane) server() string {
	return "https://" + loopback(c.port)
}
