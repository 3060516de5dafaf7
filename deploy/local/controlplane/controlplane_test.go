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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestControlPlane(t *testing.T) { suitetest.Run(t, "control plane") }

var binaries controlplane.Programs

var _ = BeforeSuite(func(ctx SpecContext) {
	suitetest.ExpectNoLeaks()
	binaries = suitetest.Must(controlplane.FindPrograms(ctx, controlplane.ProgramOptions{Progress: GinkgoWriter}))
})

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

// The specs share a folder and two starts, because a start takes seconds of processor time.
var _ = Describe("A control plane in a named folder", Ordered, func() {
	var (
		dir   string
		plane *controlplane.ControlPlane
	)
	maps := func(config *clientcmdapi.Config) core.ConfigMapInterface {
		GinkgoHelper()
		return client(config).CoreV1().ConfigMaps(corev1.NamespaceDefault)
	}

	start := func(ctx context.Context) {
		GinkgoHelper()
		plane = suitetest.Must(controlplane.Start(ctx,
			controlplane.Options{Dir: dir, Assets: binaries, Progress: GinkgoWriter}))
	}

	BeforeAll(func(ctx SpecContext) {
		dir = GinkgoT().TempDir()
		start(ctx)
		DeferCleanup(func(ctx SpecContext) error { return plane.Stop(ctx) })
	})

	It("hides the kubeconfig from other users of the machine", func() {
		Expect(suitetest.Must(os.Stat(plane.Kubeconfig())).Mode().Perm()).To(Equal(os.FileMode(0o600)))
	})

	It("shares it with no other one", func(ctx SpecContext) {
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})
		Expect(err).To(MatchError(controlplane.ErrInUse))
		Expect(err).To(MatchError(ContainSubstring(dir)))
	})

	It("keeps data, port and certificates across a restart, and leaves no process behind", func(ctx SpecContext) {
		old := suitetest.Must(controlplane.Load(plane.Kubeconfig(), ""))
		kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
		suitetest.Must(maps(old).Create(ctx, kept, metav1.CreateOptions{}))
		Expect(processes(dir)).To(HaveLen(2))
		Expect(plane.Stop(ctx)).To(Succeed())
		Expect(processes(dir)).To(BeEmpty())
		Expect(plane.Failed()).NotTo(Receive())

		start(ctx)
		suitetest.Must(maps(old).Get(ctx, "kept", metav1.GetOptions{}))
	})

	accessSpecs(func() string { return plane.Kubeconfig() })

	It("reports the unexpected end of a process, with the end of its log", func() {
		Consistently(plane.Failed(), "100ms").ShouldNot(Receive())
		Expect(syscall.Kill(processes(dir)["etcd"], syscall.SIGKILL)).To(Succeed())
		Eventually(plane.Failed()).Should(Receive(And(
			MatchError(controlplane.ErrExited), MatchError(MatchRegexp(`^etcd exited \(signal: killed\): \S+`)))))
	})

	It("stops although its etcd has died", func() {
		stopped := make(chan error)
		go func() { stopped <- plane.Stop(context.Background()) }()
		Eventually(stopped).Should(Receive(MatchError(controlplane.ErrExited)))
		Expect(processes(dir)).To(BeEmpty())
	})
})

var _ = It("A remote API server serves on its host name and loopback, and keeps its keys", func() {
	dir := GinkgoT().TempDir()
	Expect(controlplane.Prepare(dir, "kube-apiserver")).To(Succeed())
	serving, kubeconfig := filepath.Join(dir, "pki", "apiserver.crt"), filepath.Join(dir, "kubeconfig")
	first := suitetest.Must(os.ReadFile(serving))
	Expect(controlplane.Prepare(dir, "kube-apiserver")).To(Succeed())
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

var _ = It("A control plane without programs names the program that cannot run", func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	Expect(controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: controlplane.Programs{Dir: dir}})).Error().
		To(MatchError(MatchRegexp(`^start etcd: .*no such file`)))
})
