package controlplane

import (
	"net"
	"path/filepath"
)

// External is a kube-apiserver that is started elsewhere, such as in a container.
type External struct {
	// Dir keeps what it needs: pki/ with its certificates and keys, and kubeconfig
	// of the administrator. What is there is kept.
	Dir string
	// Host is the name by which clients reach it, beside loopback.
	Host string
	// Port that it listens at.
	Port string
}

// Prepare writes what is missing in Dir.
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
	server := "https://" + net.JoinHostPort(e.Host, e.Port)
	return authority.writeKubeconfig(e.Kubeconfig(), server)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (e External) Kubeconfig() string { return filepath.Join(e.Dir, "kubeconfig") }
