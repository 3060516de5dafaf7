package assets_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
)

var _ = Describe("Binaries that the user brings", func() {
	It("are taken from the folder that the variable names", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		write(dir, "", "etcd", "kube-apiserver", "kubectl")
		GinkgoT().Setenv(assets.EnvDir, dir)
		found, err := assets.Find(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Etcd()).To(Equal(filepath.Join(dir, "etcd")))
		Expect(found.APIServer()).To(Equal(filepath.Join(dir, "kube-apiserver")))
		Expect(found.Kubectl()).To(Equal(filepath.Join(dir, "kubectl")))
	})

	DescribeTable("are refused with one sentence that says what is wrong",
		func(ctx SpecContext, spoil func(dir string) error, message string) {
			dir := GinkgoT().TempDir()
			write(dir, "", "etcd", "kube-apiserver", "kubectl")
			Expect(spoil(dir)).To(Succeed())
			GinkgoT().Setenv(assets.EnvDir, dir)
			_, err := assets.Find(ctx, nil)
			Expect(err).To(MatchError(assets.ErrMissing))
			Expect(err).To(MatchError(And(
				ContainSubstring(message),
				ContainSubstring(dir),
				HaveSuffix("; point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver and kubectl, or unset it to have them built"),
			)))
		},
		Entry("no folder", os.RemoveAll, "no etcd in"),
		Entry("no etcd", remove("etcd"), "no etcd in"),
		Entry("no kube-apiserver", remove("kube-apiserver"), "no kube-apiserver in"),
		Entry("no kubectl", remove("kubectl"), "no kubectl in"),
		Entry("not executable", func(dir string) error { return os.Chmod(filepath.Join(dir, "etcd"), 0o644) },
			"etcd in"),
		Entry("a folder in place of a program", func(dir string) error {
			path := filepath.Join(dir, "kubectl")
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o755)
		}, "is not an executable file"),
	)

	It("need a home or a folder", func(ctx SpecContext) {
		for _, name := range []string{assets.EnvDir, "HOME", "XDG_CACHE_HOME"} {
			GinkgoT().Setenv(name, "")
		}
		_, err := assets.Find(ctx, nil)
		Expect(err).To(MatchError(HaveSuffix("; set HOME or KUBEBUILDER_ASSETS")))
	})
})

func remove(name string) func(dir string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}
