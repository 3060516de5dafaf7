package controlplane_test

import (
	"context"
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestControlPlane(t *testing.T) { suitetest.Run(t, "control plane") }

var binaries controlplane.Programs

var _ = BeforeSuite(func(ctx SpecContext) {
	suitetest.ExpectNoLeaks()
	binaries = suitetest.Must(controlplane.FindPrograms(ctx, controlplane.ProgramOptions{Progress: GinkgoWriter}))
})

// start runs a control plane until the end of the spec or container.
func start(ctx context.Context, options controlplane.Options) *controlplane.ControlPlane {
	GinkgoHelper()
	options.Assets, options.Progress = binaries, GinkgoWriter
	plane := suitetest.Must(controlplane.Start(ctx, options))
	DeferCleanup(plane.Stop)
	return plane
}

func clientOf(kubeconfig string) *kubernetes.Clientset {
	GinkgoHelper()
	config := suitetest.Must(clientcmd.BuildConfigFromFlags("", kubeconfig))
	return suitetest.Must(kubernetes.NewForConfig(config))
}

func dirOf(plane *controlplane.ControlPlane) string { return filepath.Dir(plane.Kubeconfig()) }

// processes returns the process IDs by program name of all processes whose command line contains the folder.
func processes(dir string) map[string]int {
	GinkgoHelper()
	output := suitetest.Must(exec.Command("ps", "-axww", "-o", "pid=,command=").Output())
	found := map[string]int{}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.Contains(line, dir+"/") {
			continue
		}
		pid := suitetest.Must(strconv.Atoi(fields[0]))
		found[fields[1][strings.LastIndex(fields[1], "/")+1:]] = pid
	}
	return found
}

func configMap(name string) *core.ConfigMap {
	return &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: name}, Data: map[string]string{"key": "first"}}
}

var _ = Describe("A control plane", Ordered, func() {
	var (
		plane  *controlplane.ControlPlane
		client *kubernetes.Clientset
	)

	BeforeAll(func(ctx SpecContext) {
		plane = start(ctx, controlplane.Options{})
		client = clientOf(plane.Kubeconfig())
	})

	It("hides the kubeconfig from other users of the machine", func() {
		Expect(suitetest.Must(os.Stat(plane.Kubeconfig())).Mode().Perm()).To(Equal(os.FileMode(0o600)))
	})

	It("restarts a killed API server on the same port, with its data", func(ctx SpecContext) {
		maps := client.CoreV1().ConfigMaps(core.NamespaceDefault)
		suitetest.Must(maps.Create(ctx, configMap("killed"), meta.CreateOptions{}))
		plane.KillAPIServer()
		Expect(processes(dirOf(plane))).To(And(HaveKey("etcd"), Not(HaveKey("kube-apiserver"))))
		_, err := maps.Get(ctx, "killed", meta.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("connection refused")))

		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Expect(maps.Get(ctx, "killed", meta.GetOptions{})).To(HaveField("Data", HaveKeyWithValue("key", "first")))
		Expect(plane.Failed()).NotTo(Receive())
		Expect(plane.StartAPIServer(ctx)).To(MatchError(controlplane.ErrRunning), "it already runs")
	})

	It("leaves no process and no file behind", func(ctx SpecContext) {
		Expect(processes(dirOf(plane))).To(HaveLen(2))
		Expect(plane.Stop(ctx)).To(Succeed())
		Expect(processes(dirOf(plane))).To(BeEmpty())
		Expect(dirOf(plane)).NotTo(BeADirectory())
		Expect(plane.Failed()).NotTo(Receive())
		Expect(plane.StartAPIServer(ctx)).To(MatchError(controlplane.ErrStopped))
	})
})

var _ = Describe("A control plane in a named folder", func() {
	It("keeps data, port and certificates across a restart", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		plane := start(ctx, controlplane.Options{Dir: dir})
		old := suitetest.Must(clientcmd.LoadFromFile(plane.Kubeconfig()))
		suitetest.Must(clientOf(plane.Kubeconfig()).CoreV1().ConfigMaps(core.NamespaceDefault).
			Create(ctx, configMap("kept"), meta.CreateOptions{}))
		Expect(plane.Stop(ctx)).To(Succeed())
		Expect(processes(dir)).To(BeEmpty())

		start(ctx, controlplane.Options{Dir: dir})
		config := suitetest.Must(clientcmd.NewDefaultClientConfig(*old, nil).ClientConfig())
		suitetest.Must(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(core.NamespaceDefault).
			Get(ctx, "kept", meta.GetOptions{}))
	})

	It("refuses to start in a folder that is in use", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		start(ctx, controlplane.Options{Dir: dir})
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})
		Expect(err).To(MatchError(controlplane.ErrInUse))
		Expect(err).To(MatchError(ContainSubstring(dir)))
	})
})

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

var _ = Describe("A failing control plane", func() {
	It("reports the unexpected end of a process, with the end of its log", func(ctx SpecContext) {
		plane := start(ctx, controlplane.Options{})
		Consistently(plane.Failed(), "100ms").ShouldNot(Receive())
		Expect(syscall.Kill(processes(dirOf(plane))["etcd"], syscall.SIGKILL)).To(Succeed())
		Eventually(plane.Failed()).Should(Receive(And(
			MatchError(controlplane.ErrExited), MatchError(MatchRegexp(`^etcd exited \(signal: killed\): \S+`)))))
	})

	It("names the program that cannot run", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		Expect(controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: controlplane.Programs{Dir: dir}})).Error().
			To(MatchError(MatchRegexp(`^start etcd: .*no such file`)))
	})
})
