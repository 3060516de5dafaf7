package controlplane_test

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

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("KUBEBUILDER_ASSETS", func() {
	It("is the folder with the programs", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		write(dir, "", "etcd", "kube-apiserver", "kubectl")
		GinkgoT().Setenv(controlplane.EnvDir, dir)
		found := suitetest.Must(controlplane.FindPrograms(ctx, controlplane.ProgramOptions{}))
		Expect(found.Etcd()).To(Equal(filepath.Join(dir, "etcd")))
		Expect(found.APIServer()).To(Equal(filepath.Join(dir, "kube-apiserver")))
		Expect(found.Kubectl()).To(Equal(filepath.Join(dir, "kubectl")))
	})

	DescribeTable("is rejected with one sentence for",
		func(ctx SpecContext, spoil func(dir string) error, message string) {
			dir := GinkgoT().TempDir()
			write(dir, "", "etcd", "kube-apiserver", "kubectl")
			Expect(spoil(dir)).To(Succeed())
			GinkgoT().Setenv(controlplane.EnvDir, dir)
			_, err := controlplane.FindPrograms(ctx, controlplane.ProgramOptions{})
			Expect(err).To(MatchError(controlplane.ErrMissing))
			Expect(err).To(MatchError(And(
				ContainSubstring(message),
				ContainSubstring(dir),
				HaveSuffix(": point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver and kubectl, or unset it to have "+
					"them downloaded or built"),
			)))
		},
		Entry("a missing folder", os.RemoveAll, "no etcd in"),
		Entry("a missing etcd", remove("etcd"), "no etcd in"),
		Entry("a missing kube-apiserver", remove("kube-apiserver"), "no kube-apiserver in"),
		Entry("a missing kubectl", remove("kubectl"), "no kubectl in"),
		Entry("a file that is not executable", func(dir string) error { return os.Chmod(filepath.Join(dir, "etcd"), 0o644) },
			"etcd in"),
		Entry("a folder instead of a program", func(dir string) error {
			path := filepath.Join(dir, "kubectl")
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o755)
		}, "is not an executable file"),
	)

	It("is required if there is no home folder", func(ctx SpecContext) {
		for _, name := range []string{controlplane.EnvDir, "HOME", "XDG_CACHE_HOME"} {
			GinkgoT().Setenv(name, "")
		}
		Expect(controlplane.FindPrograms(ctx, controlplane.ProgramOptions{})).Error().
			To(MatchError(HaveSuffix(": set HOME or KUBEBUILDER_ASSETS")))
	})
})

var _ = Describe("An archive of envtest", func() {
	var (
		options controlplane.ProgramOptions
		printed *gbytes.Buffer
		digest  string
	)

	BeforeEach(func() {
		GinkgoT().Setenv("PATH", GinkgoT().TempDir()) // no go command
		GinkgoT().Setenv(controlplane.EnvDir, "")
		dir := GinkgoT().TempDir()
		write(dir, "", "etcd", "kube-apiserver", "kubectl")
		content := archived(dir)
		digest = fmt.Sprintf("%x", sha512.Sum512(content))
		printed = gbytes.NewBuffer()
		mux := http.NewServeMux()
		server := httptest.NewServer(mux)
		DeferCleanup(server.Close)
		name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", controlplane.KubernetesVersion(), runtime.GOOS, runtime.GOARCH)
		mux.HandleFunc("GET /index", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "releases: {%s: {%s: {hash: %s, selfLink: %s/archive}}}", controlplane.KubernetesVersion(), name,
				digest,
				server.URL)
		})
		mux.HandleFunc("GET /archive", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
		options = controlplane.ProgramOptions{
			Cache: GinkgoT().TempDir(), Progress: printed, Index: server.URL + "/index",
		}
	})

	It("is downloaded once, and makes a build unnecessary", func(ctx SpecContext) {
		found := suitetest.Must(controlplane.FindPrograms(ctx, options))
		Expect(found.APIServer()).To(BeAnExistingFile())
		options.Index = "http://127.0.0.1:1/index"
		Expect(controlplane.FindPrograms(ctx, options)).To(Equal(found))
	})

	It("is not used if a build is requested", func(ctx SpecContext) {
		suitetest.Must(controlplane.FindPrograms(ctx, options))
		options.Build = true
		Expect(controlplane.FindPrograms(ctx, options)).Error().To(MatchError(controlplane.ErrNoToolchain))
	})

	It("is rejected if its checksum differs", func(ctx SpecContext) {
		digest = strings.Repeat("0", 128)
		Expect(controlplane.FindPrograms(ctx, options)).Error().To(MatchError(controlplane.ErrNoToolchain))
		Expect(printed).To(gbytes.Say("no archive of envtest, building from source: checksum mismatch"))
		Expect(filepath.Glob(filepath.Join(options.Cache, "*", "*"))).To(BeEmpty())
	})

	It("is given up after seconds if the network drops packets", func(ctx SpecContext) {
		silent := suitetest.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")) // the kernel accepts
		DeferCleanup(silent.Close)
		options.Index = "http://" + silent.Addr().String() + "/index"
		Expect(controlplane.FindPrograms(ctx, options)).Error().To(MatchError(controlplane.ErrNoToolchain))
		Expect(printed).To(gbytes.Say("no archive of envtest, building from source: .*context deadline exceeded.*\n"))
	}, NodeTimeout(time.Minute))
})

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
