package controlplane_test

import (
	"crypto/tls"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("A remote API server", func() {
	It("serves on its host name and loopback, and keeps its keys", func() {
		dir := GinkgoT().TempDir()
		Expect(controlplane.Prepare(dir, "kube-apiserver", "6443")).To(Succeed())
		serving, kubeconfig := filepath.Join(dir, "pki", "apiserver.crt"), filepath.Join(dir, "kubeconfig")
		first := suitetest.Must(os.ReadFile(serving))
		Expect(controlplane.Prepare(dir, "kube-apiserver", "6443")).To(Succeed())
		Expect(os.ReadFile(serving)).To(Equal(first))

		pair := suitetest.Must(tls.LoadX509KeyPair(serving, filepath.Join(dir, "pki", "apiserver.key")))
		for _, host := range []string{"kube-apiserver", "localhost", "127.0.0.1"} {
			Expect(pair.Leaf.VerifyHostname(host)).To(Succeed(), host)
		}
		Expect(suitetest.Must(clientcmd.BuildConfigFromFlags("", kubeconfig)).Host).To(Equal("https://kube-apiserver:6443"))
		for _, path := range []string{kubeconfig, filepath.Join(dir, "pki", "apiserver.key")} {
			Expect(suitetest.Must(os.Stat(path)).Mode().Perm()).To(Equal(os.FileMode(0o600)), path)
		}
	})
})
