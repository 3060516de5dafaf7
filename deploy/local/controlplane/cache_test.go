package controlplane_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// write creates executable files with a shell script.
func write(dir, script string, names ...string) {
	GinkgoHelper()
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	for _, name := range names {
		Expect(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755)).To(Succeed())
	}
}

// A real build takes minutes, and all other suites test it. Here, a script replaces the go command.
var _ = Describe("A cache of control planes", func() {
	var (
		dir     string
		printed *gbytes.Buffer
		options controlplane.ProgramOptions
	)

	BeforeEach(func() {
		dir = GinkgoT().TempDir()
		printed = gbytes.NewBuffer()
		options = controlplane.ProgramOptions{Cache: dir, Build: true, Progress: printed}
	})

	useGo := func(script string) {
		path := GinkgoT().TempDir()
		write(path, script, "go")
		GinkgoT().Setenv("PATH", path+":"+os.Getenv("PATH"))
	}

	It("reports a missing go command", func(ctx SpecContext) {
		GinkgoT().Setenv("PATH", GinkgoT().TempDir())
		_, err := controlplane.FindPrograms(ctx, options)
		Expect(err).To(MatchError(controlplane.ErrNoToolchain))
		Expect(err).To(MatchError(
			HaveSuffix(": install Go or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl")))
	})

	It("quotes the last lines of a failed build, and leaves no partial result", func(ctx SpecContext) {
		useGo(`
case $1 in
list) echo k8s.io/api/core/v1 ;;
build)
	echo k8s.io/api/core/v1
	echo '# k8s.io/api/core/v1' >&2
	echo 'types.go:1:1: no space left on device' >&2
	exit 3 ;;
esac`)
		_, err := controlplane.FindPrograms(ctx, options)
		Expect(err).To(MatchError(controlplane.ErrFailed))
		Expect(err).To(MatchError(HaveSuffix(
			"go build: exit status 3: # k8s.io/api/core/v1; types.go:1:1: no space left on device")))
		Expect(printed).To(gbytes.Say(`control plane v1\.\d+\.\d+: 1 of 1 packages`))
		Expect(filepath.Glob(filepath.Join(dir, "*", "*"))).To(BeEmpty())
	})

	It("interrupts the go command when the context is cancelled", func(ctx SpecContext) {
		useGo("trap 'exit 130' INT\ntouch started\nwhile :; do sleep 0.1; done")
		gone := errors.New("the caller left")
		leaving, leave := context.WithCancelCause(ctx)
		result := make(chan error, 1)
		go func() {
			_, err := controlplane.FindPrograms(leaving, options)
			result <- err
		}()
		scratch := filepath.Join(dir, controlplane.VersionHash()+".new")
		started := filepath.Join(scratch, "started")
		Eventually(started).Should(BeAnExistingFile())
		leave(gone)
		Eventually(result).Should(Receive(MatchError(gone)))
		Expect(scratch).NotTo(BeADirectory())
	})

	It("waits for another process that builds, and uses its result", func(ctx SpecContext) {
		useGo("exit 1")
		target := filepath.Join(dir, controlplane.VersionHash())
		other := flock.New(filepath.Join(dir, "lock"))
		Expect(other.TryLock()).To(BeTrue())
		result := make(chan controlplane.Programs, 1)
		go func() {
			defer GinkgoRecover()
			found := suitetest.Must(controlplane.FindPrograms(ctx, options))
			result <- found
		}()
		Eventually(printed).Should(gbytes.Say("waiting for another process"))
		Consistently(result, "300ms").ShouldNot(Receive())
		write(target, "", "etcd", "kube-apiserver", "kubectl")
		Expect(other.Unlock()).To(Succeed())
		Eventually(result).Should(Receive(Equal(controlplane.Programs{Dir: target})))
	})

	It("builds all programs at once if one is missing", func(ctx SpecContext) {
		useGo(`
[ "$1" = build ] || exit 0
for name in server kube-apiserver kubectl; do echo built >"$4/$name" && chmod +x "$4/$name"; done`)
		target := filepath.Join(dir, controlplane.VersionHash())
		write(target, "", "etcd", "kube-apiserver")
		Expect(controlplane.FindPrograms(ctx, options)).To(Equal(controlplane.Programs{Dir: target}))
	})

	It("stops waiting for another process when the context is cancelled", func(ctx SpecContext) {
		other := flock.New(filepath.Join(dir, "lock"))
		Expect(other.TryLock()).To(BeTrue())
		DeferCleanup(other.Unlock)
		leaving, leave := context.WithCancel(ctx)
		leave()
		Expect(controlplane.FindPrograms(leaving, options)).Error().To(MatchError(context.Canceled))
	})
})
