package controlplane_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("A failing control plane", func() {
	It("reports the unexpected end of a process, with the end of its log", func(ctx SpecContext) {
		plane := start(ctx, controlplane.Options{})
		Consistently(plane.Failed(), "100ms").ShouldNot(Receive())
		Expect(syscall.Kill(processes(dirOf(plane))["etcd"], syscall.SIGKILL)).To(Succeed())
		Eventually(plane.Failed()).Should(Receive(And(
			MatchError(controlplane.ErrExited), MatchError(MatchRegexp(`^etcd exited \(signal: killed\): \S+`)))))
	})

	It("quotes an API server that does not start, and leaves nothing behind", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		Expect(controlplane.Prepare(dir, "localhost", "6443")).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "pki", "service-account.key"), nil, 0o600)).To(Succeed())
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})
		Expect(err).To(MatchError(controlplane.ErrExited))
		Expect(err).To(MatchError(MatchRegexp(`^kube-apiserver exited \(exit status 1\): .*service-account`)))
		Expect(processes(dir)).To(BeEmpty())
	})

	It("rejects a port in use", func(ctx SpecContext) {
		listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
		defer listener.Close()
		dir := GinkgoT().TempDir()
		port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
		Expect(os.WriteFile(filepath.Join(dir, "port"), []byte(port), 0o600)).To(Succeed())
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})
		Expect(err).To(MatchError(controlplane.ErrPortTaken))
		Expect(err).To(MatchError(ContainSubstring(listener.Addr().String())))
	})

	DescribeTable("names the damaged file:",
		func(ctx SpecContext, name, content, hint string) {
			dir := GinkgoT().TempDir()
			file := filepath.Join(dir, name)
			Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
			Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
			Expect(controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})).Error().
				To(MatchError(ContainSubstring(hint)))
		},
		Entry("the port", "port", "many", "remove the file"),
		Entry("the credentials", "pki/token.csv", "", "pki to create new ones"),
	)

	It("names the program that cannot run", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		Expect(controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: controlplane.Programs{Dir: dir}})).Error().
			To(MatchError(MatchRegexp(`^start etcd: .*no such file`)))
	})
})
