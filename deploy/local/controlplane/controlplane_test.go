package controlplane_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestControlPlane(t *testing.T) { suitetest.Run(t, "control plane") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

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
			controlplane.Options{Dir: dir, Progress: GinkgoWriter}))
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
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir})
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

var _ = DescribeTable("Spoiled credentials are one sentence with the way out, not an API server that nobody can use:",
	func(spoil func(pki string), sentence string) {
		dir := GinkgoT().TempDir()
		pki := filepath.Join(dir, "pki")
		Expect(controlplane.Prepare(dir, "kube-apiserver")).To(Succeed())
		spoil(pki)
		Expect(controlplane.Prepare(dir, "kube-apiserver")).To(MatchError(MatchRegexp(
			"^load credentials: " + pki + "/" + sentence + ` \(remove ` + pki + ` to create new ones\)$`)))
	},
	Entry("a token that a crash has emptied", func(pki string) { empty(pki, "token.csv") }, "token.csv has no token"),
	Entry("a certificate that a crash has emptied", func(pki string) { empty(pki, "apiserver.crt") },
		"apiserver.crt: .* failed to find any PEM data .*"),
	Entry("a certificate that has expired", func(pki string) {
		certificate, key, err := cert.GenerateSelfSignedCertKeyWithOptions(
			cert.SelfSignedCertKeyOptions{Host: "kube-apiserver", MaxAge: time.Minute}) // valid since an hour ago
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(pki, "apiserver.crt"), certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(pki, "apiserver.key"), key, 0o600)).To(Succeed())
	}, "apiserver.crt is valid from [0-9-]+ to [0-9-]+, and it is [0-9-]+"),
)

func empty(dir, name string) {
	GinkgoHelper()
	Expect(os.Truncate(filepath.Join(dir, name), 0)).To(Succeed())
}

var _ = It("An etcd that panics during the start ends it at once, with its reason", func(ctx SpecContext) {
	programs := GinkgoT().TempDir()
	GinkgoT().Setenv(controlplane.EnvDir, programs)
	for name, script := range map[string]string{
		"etcd": `: >etcd.sock; until [ -e started ]; do sleep 0.01; done
echo '{"level":"panic","msg":"failed to create WAL","error":"no space left on device"}'
echo 'goroutine 1 [running]:'; exit 2`,
		"kube-apiserver": `: >started; exec sleep 600`,
	} {
		Expect(os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700)).To(Succeed())
	}
	_, err := controlplane.Start(ctx, controlplane.Options{})
	Expect(err).To(MatchError("etcd exited (exit status 2): failed to create WAL: no space left on device"))
}, SpecTimeout(time.Minute))

// manifests has the manifests of docker compose, and definitions the CRD of Watchers, which it applies first.
const (
	manifests   = "../../docker/manifests"
	definitions = "../../../proto/watch/v1alpha1/crd"
)

func client(config *clientcmdapi.Config) kubernetes.Interface {
	GinkgoHelper()
	return suitetest.Must(kubernetes.NewForConfig(suitetest.Must(controlplane.ClientConfig(config))))
}

// accessSpecs cannot use the shared API server, because another suite applies and deletes objects with the same names.
func accessSpecs(kubeconfig func() string) {
	It("applies the manifests of docker compose, also twice, and makes tokens of their accounts", func(ctx SpecContext) {
		administrator := suitetest.Must(controlplane.Load(kubeconfig(), ""))
		config := suitetest.Must(controlplane.ClientConfig(administrator))
		Expect(controlplane.Ready(ctx, config)).To(Succeed())
		for range 2 {
			applied := suitetest.Must(controlplane.Apply(ctx, config, []string{definitions, manifests}))
			Expect(applied).To(ContainElements(
				"Namespace/curl-me-that", "ServiceAccount/curl-me-that-watcher", "ClusterRole/curl-me-that-writer",
				"ValidatingAdmissionPolicyBinding/curl-me-that-writer", "ValidatingAdmissionPolicyBinding/curl-me-that-keeper",
				"ConfigMap/joke", "CustomResourceDefinition/watchers.watch.x-kv8s.io", "Watcher/jokes",
			))
		}
		for _, name := range []string{"watcher", "keeper"} {
			own := suitetest.Must(controlplane.Account(ctx, administrator, "curl-me-that", "curl-me-that-"+name))
			Expect(own.AuthInfos).To(HaveLen(1))
			core := client(own).CoreV1()
			Eventually(ctx, func() error {
				_, err := core.ConfigMaps("").List(ctx, metav1.ListOptions{})
				return err
			}).Should(Succeed(), name)
			_, err := core.Secrets("").List(ctx, metav1.ListOptions{})
			Expect(err).To(MatchError(apierrors.IsForbidden, "forbidden"))
		}
	})

	It("reports an interrupt while it waits for a kind, not a time limit", func(ctx SpecContext) {
		config := suitetest.Must(clientcmd.BuildConfigFromFlags("", kubeconfig()))
		running, interrupt := context.WithCancelCause(ctx)
		interrupted, applied := errors.New("interrupt"), false
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return kubetest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				if applied {
					interrupt(interrupted)
				}
				applied = applied || r.Method == http.MethodPatch
				return next.RoundTrip(r)
			})
		})
		Expect(controlplane.ApplyManifest(running, config, "spec", "", watchv1.Definition)).To(MatchError(interrupted))
	})

	It("reports a missing permission or file in one sentence", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		write := func(text string) string {
			path := filepath.Join(dir, "kubeconfig")
			Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
			return path
		}
		Expect(controlplane.Load(filepath.Join(dir, "nowhere"), "")).Error().To(MatchError(os.ErrNotExist))
		Expect(controlplane.Load(write(`{"apiVersion":"v1","kind":"Config"}`), "")).Error().
			To(MatchError(controlplane.ErrNoContext))
		plugin := write(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"clusters":[{"name":"k","cluster":{"server":"https://k"}}],
			"users":[{"name":"u","user":{
				"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"login","interactiveMode":"Never"}}}],
			"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}]}`)
		Expect(controlplane.Load(plugin, "")).Error().To(MatchError(controlplane.ErrPlugin))
		administrator := suitetest.Must(controlplane.Load(kubeconfig(), ""))
		Expect(controlplane.Account(ctx, administrator, "default", "nobody")).Error().
			To(MatchError(ContainSubstring("request a token of service account default/nobody")))
	})

	It("writes files that only the owner can read, for any URL of the API server", func() {
		administrator := suitetest.Must(controlplane.Load(kubeconfig(), ""))
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		for range 2 {
			Expect(controlplane.Write(controlplane.At(administrator, "https://elsewhere:6443"), path)).To(Succeed())
		}
		Expect(suitetest.Must(os.Stat(path)).Mode().Perm()).To(Equal(os.FileMode(0o600)))
		moved := suitetest.Must(controlplane.Load(path, ""))
		Expect(suitetest.Must(controlplane.ClientConfig(moved)).Host).To(Equal("https://elsewhere:6443"))
		if os.Getuid() != 0 {
			Skip("only root can change the owner of a file")
		}
		Expect(os.Chown(filepath.Dir(path), 65532, 65532)).To(Succeed())
		Expect(controlplane.Write(administrator, path)).To(Succeed())
		Expect(suitetest.Must(os.Stat(path)).Sys().(*syscall.Stat_t).Uid).To(Equal(uint32(65532)))
	})
}

var _ = Describe("KUBEBUILDER_ASSETS", func() {
	var dir string
	BeforeEach(func() {
		dir = GinkgoT().TempDir()
		for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755)).To(Succeed())
		}
		GinkgoT().Setenv(controlplane.EnvDir, dir)
		GinkgoT().Setenv("PATH", "")
	})

	It("is the folder with the programs", func() {
		Expect(controlplane.FindPrograms()).To(Equal(dir))
		path, found := controlplane.Kubectl()
		Expect(found).To(BeTrue())
		Expect(path).To(Equal(filepath.Join(dir, "kubectl")))
	})

	It("needs no kubectl", func() {
		Expect(os.Remove(filepath.Join(dir, "kubectl"))).To(Succeed())
		Expect(controlplane.FindPrograms()).To(Equal(dir))
		_, found := controlplane.Kubectl()
		Expect(found).To(BeFalse())
	})

	DescribeTable("is rejected with one sentence for", func(spoil func() error, name string) {
		Expect(spoil()).To(Succeed())
		Expect(controlplane.FindPrograms()).Error().To(And(MatchError(controlplane.ErrMissing),
			MatchError(MatchRegexp(filepath.Join(dir, name)+`.*: set KUBEBUILDER_ASSETS to a folder with .*`))))
	},
		Entry("a missing folder", func() error { return os.RemoveAll(dir) }, "etcd"),
		Entry("a missing program", func() error { return os.Remove(filepath.Join(dir, "kube-apiserver")) }, "kube-apiserver"),
		Entry("a file that is not executable", func() error { return os.Chmod(filepath.Join(dir, "etcd"), 0o644) }, "etcd"),
	)
})
