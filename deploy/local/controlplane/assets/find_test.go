package assets_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
	"github.com/kv8s/curl-me-that/deploy/local/internal/gobuild"
	"github.com/kv8s/curl-me-that/deploy/local/internal/progress"
)

var _ = Describe("Binaries that the user brings", func() {
	It("takes binaries from the folder that the variable names", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		write(dir, "", "etcd", "kube-apiserver", "kubectl")
		GinkgoT().Setenv(assets.EnvDir, dir)
		found, err := assets.Find(ctx, assets.Options{Kubectl: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Etcd()).To(Equal(filepath.Join(dir, "etcd")))
		Expect(found.APIServer()).To(Equal(filepath.Join(dir, "kube-apiserver")))
		Expect(found.Kubectl()).To(Equal(filepath.Join(dir, "kubectl")))
	})

	DescribeTable("refuses binaries with one sentence about what is wrong",
		func(ctx SpecContext, spoil func(dir string) error, message string) {
			dir := GinkgoT().TempDir()
			write(dir, "", "etcd", "kube-apiserver", "kubectl")
			Expect(spoil(dir)).To(Succeed())
			GinkgoT().Setenv(assets.EnvDir, dir)
			_, err := assets.Find(ctx, assets.Options{Kubectl: true})
			Expect(err).To(MatchError(assets.ErrMissing))
			Expect(err).To(MatchError(And(
				ContainSubstring(message),
				ContainSubstring(dir),
				HaveSuffix("; point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver and kubectl, or unset it to have them found or built"),
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
		_, err := assets.Find(ctx, assets.Options{Kubectl: true})
		Expect(err).To(MatchError(HaveSuffix("; set HOME or KUBEBUILDER_ASSETS")))
	})
})

var _ = Describe("Binaries of others", func() {
	var cache, path, store string

	BeforeEach(func() {
		for variable, dir := range map[string]*string{"XDG_CACHE_HOME": &cache, "PATH": &path, "XDG_DATA_HOME": &store} {
			*dir = GinkgoT().TempDir()
			GinkgoT().Setenv(variable, *dir)
		}
		GinkgoT().Setenv(assets.EnvDir, "")
	})
	archive := func(version string) string {
		return filepath.Join(store, "kubebuilder-envtest", "k8s", version+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	}

	It("takes binaries from a folder of PATH with a version that serves", func(ctx SpecContext) {
		serving(path, assets.KubernetesVersion())
		serving(archive(assets.KubernetesVersion()[1:]), assets.KubernetesVersion())
		Expect(assets.Find(ctx, assets.Options{})).To(HaveField("Dir", path))
	})

	It("takes what setup-envtest has fetched when the binaries of PATH are too old", func(ctx SpecContext) {
		serving(path, "v1.20.0")
		stored := archive(assets.KubernetesVersion()[1:])
		serving(stored, assets.KubernetesVersion())
		printed := gbytes.NewBuffer()
		Expect(assets.Find(ctx, assets.Options{Progress: printed})).To(HaveField("Dir", stored))
		Expect(printed).To(gbytes.Say(`leaving out .*: its kube-apiserver is v1\.20\.0, and 1\.\d+ is needed`))
	})

	It("takes no binaries of others when a build is asked for", func(ctx SpecContext) {
		serving(path, assets.KubernetesVersion())
		GinkgoT().Setenv(assets.EnvDir, path)
		_, err := assets.Find(ctx, assets.Options{Build: true})
		Expect(err).To(MatchError(gobuild.ErrNoToolchain))
	})

	Describe("that can be fetched", func() {
		var (
			builder assets.Builder
			printed *gbytes.Buffer
			digest  string
			content []byte
		)

		BeforeEach(func() {
			content = archived(serving(GinkgoT().TempDir(), assets.KubernetesVersion()))
			digest = fmt.Sprintf("%x", sha512.Sum512(content))
			printed = gbytes.NewBuffer()
			display := progress.New(printed)
			DeferCleanup(display.Close)
			mux := http.NewServeMux()
			server := httptest.NewServer(mux)
			DeferCleanup(server.Close)
			name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", assets.KubernetesVersion(), runtime.GOOS, runtime.GOARCH)
			mux.HandleFunc("GET /index", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "releases: {%s: {%s: {hash: %s, selfLink: %s/archive}}}", assets.KubernetesVersion(), name, digest, server.URL)
			})
			mux.HandleFunc("GET /archive", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
			builder = assets.Builder{Dir: cache, Part: display.Part(), Archives: &assets.Archives{Store: store, Index: server.URL + "/index"}}
		})

		It("puts fetched binaries into the store", func(ctx SpecContext) {
			found, err := builder.Build(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(found.Dir).To(HavePrefix(store))
			Expect(found.APIServer()).To(BeAnExistingFile())
		})

		It("refuses an archive with another checksum, and builds", func(ctx SpecContext) {
			digest = strings.Repeat("0", 128)
			_, err := builder.Build(ctx)
			Expect(err).To(MatchError(gobuild.ErrNoToolchain))
			Expect(printed).To(gbytes.Say("no archive of envtest to be had, building from source: checksum mismatch"))
			Expect(filepath.Glob(filepath.Join(store, "k8s", "*"))).To(BeEmpty())
		})

		It("builds when there is no response", func(ctx SpecContext) {
			builder.Archives.Index = "http://127.0.0.1:1/index"
			_, err := builder.Build(ctx)
			Expect(err).To(MatchError(gobuild.ErrNoToolchain))
			Expect(printed).To(gbytes.Say("no archive of envtest to be had, building from source: .*connection refused\n"))
		})

		It("builds when an index accepts the connection, and nothing comes for 3 s", func(ctx SpecContext) {
			silent, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0") // the kernel accepts
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(silent.Close)
			builder.Archives.Index = "http://" + silent.Addr().String() + "/index"
			_, err = builder.Build(ctx)
			Expect(err).To(MatchError(gobuild.ErrNoToolchain))
			Expect(printed).To(gbytes.Say("no archive of envtest to be had, building from source: .*context deadline exceeded.*\n"))
			Expect(assets.ReachTimeout).To(BeNumerically("<=", 3*time.Second))
		}, NodeTimeout(time.Minute))
	})
})

// serving puts programs that print a version into dir, and returns it.
func serving(dir, version string) string {
	GinkgoHelper()
	write(dir, "echo Kubernetes "+version, "kube-apiserver")
	write(dir, "echo etcd Version: 3.6.8", "etcd")
	return dir
}

// archived returns the files of dir as an archive of envtest.
func archived(dir string) []byte {
	GinkgoHelper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	Expect(files.AddFS(os.DirFS(dir))).To(Succeed())
	Expect(errors.Join(files.Close(), zipped.Close())).To(Succeed())
	return out.Bytes()
}

func remove(name string) func(dir string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}
