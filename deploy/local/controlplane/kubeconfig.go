package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Errors of a kubeconfig that cannot be used in a container.
var (
	ErrNoContext = errors.New("it has no current context with a cluster and a user")
	ErrPlugin    = errors.New("its user needs a login plugin, which containers do not have: use a kubeconfig with a " +
		"token or a client certificate")
)

// Load reads a context of a kubeconfig, by default the current one, and embeds all files that it refers to.
func Load(path, context string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	if context != "" {
		config.CurrentContext = context
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, ErrNoContext)
	}
	if user := config.AuthInfos[current.AuthInfo]; user.Exec != nil || user.AuthProvider != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, ErrPlugin)
	}
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, fmt.Errorf("read the files of kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// Write writes a kubeconfig that only the owner of its folder can read. A mounted folder may belong to a user
// outside of the container.
func Write(config *clientcmdapi.Config, path string) error {
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return WriteFile(text, path)
}

// WriteNATS writes the address of NATS to the file where curlctl looks for it, beside a kubeconfig
// (broker.BesideKubeconfig). Without an address it removes that file.
func WriteNATS(address, kubeconfig string) error {
	path := filepath.Join(filepath.Dir(kubeconfig), "nats.json")
	if address == "" {
		return os.RemoveAll(path) // no error if it does not exist
	}
	return WriteFile(fmt.Appendf(nil, `{"url": %q}`, address), path)
}

// WriteFile writes a file that only the owner of its folder can read.
func WriteFile(text []byte, path string) error {
	scratch, err := os.CreateTemp(filepath.Dir(path), ".new-*") // for its owner only
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(scratch.Name())
	_, err = scratch.Write(text)
	if err = errors.Join(err, scratch.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := giveToOwnerOf(filepath.Dir(path), scratch.Name()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(scratch.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func giveToOwnerOf(dir, path string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Getuid() {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}
