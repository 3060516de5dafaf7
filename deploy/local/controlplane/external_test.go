package controlplane_test

import (
	"crypto/tls"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

var _ = Describe("A remote API server", func() {
	It("serves on its host name and loopback, and keeps its keys", func() {
		dir := GinkgoT().TempDir()
		Expect(controlplane.Prepare(dir, "kube-apiserver", "6443")).To(Succeed())
		serving, kubeconfig := filepath.Join(dir, "pki", "apiserver.crt"), filepath.Join(dir, "kubeconfig")
		first, err := os.ReadFile(serving)
		Expect(err).NotTo(HaveOccurred())
		Expect(controlplane.Prepare(dir, "kube-apiserver", "6443")).To(Succeed())
		Expect(os.ReadFile(serving)).To(Equal(first))

		pair, err := tls.LoadX509KeyPair(serving, filepath.Join(dir, "pki", "apiserver.key"))
		Expect(err).NotTo(HaveOccurred())
		for _, host := range []string{"kube-apiserver", "localhost", "127.0.0.1"} {
			Expect(pair.Leaf.VerifyHostname(host)).To(Succeed(), host)
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Host).To(Equal("https://kube-apiserver:6443"))
		for _, path := range []string{kubeconfig, filepath.Join(dir, "pki", "apiserver.key")} {
			info, err := os.Stat(path)
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)), path)
		}
	})
})
