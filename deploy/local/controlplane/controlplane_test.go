package controlplane_test

import (
	"context"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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

	It("reports the version of Kubernetes", func() {
		Expect(suitetest.Must(client.Discovery().ServerVersion()).GitVersion).To(MatchRegexp(`^v1\.\d+\.\d+$`))
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

	It("stops in time even if clients watch", func(ctx SpecContext) {
		plane := start(ctx, controlplane.Options{Dir: GinkgoT().TempDir()})
		watch, err := clientOf(plane.Kubeconfig()).CoreV1().ConfigMaps(core.NamespaceDefault).Watch(ctx, meta.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		patient, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		Expect(plane.Stop(patient)).To(Succeed())
		Eventually(watch.ResultChan()).Should(BeClosed())
	})

	It("refuses to start in a folder that is in use", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		start(ctx, controlplane.Options{Dir: dir})
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})
		Expect(err).To(MatchError(controlplane.ErrInUse))
		Expect(err).To(MatchError(ContainSubstring(dir)))
	})

	It("kills a process that does not stop in time, and reports it", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		plane := start(ctx, controlplane.Options{Dir: dir})
		impatient, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		Expect(plane.Stop(impatient)).To(MatchError(ContainSubstring("stop kube-apiserver: killed")))
		Expect(processes(dir)).To(BeEmpty())
	})
})
