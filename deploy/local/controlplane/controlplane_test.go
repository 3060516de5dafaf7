package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/local/internal/filelock"
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

	It("serves when Start returns, with the namespace default", func(ctx SpecContext) {
		Expect(client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()).To(Succeed())
		_, err := client.CoreV1().Namespaces().Get(ctx, core.NamespaceDefault, meta.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("reports the version of Kubernetes", func() {
		version, err := client.Discovery().ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		Expect(version.GitVersion).To(MatchRegexp(`^v1\.\d+\.\d+$`))
	})

	It("hides the kubeconfig from other users of the machine", func() {
		info, err := os.Stat(plane.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
	})

	It("rejects a patch with an outdated resource version", func(ctx SpecContext) {
		maps := client.CoreV1().ConfigMaps(core.NamespaceDefault)
		created, err := maps.Create(ctx, configMap("concurrency"), meta.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		patch := func(value string) error {
			body := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{"key":%q}}`, created.ResourceVersion, value)
			_, err := maps.Patch(ctx, created.Name, types.MergePatchType, body, meta.PatchOptions{})
			return err
		}
		Expect(patch("second")).To(Succeed())
		Expect(patch("third")).To(MatchError(apierrors.IsConflict, "is a conflict"))
		Expect(maps.Get(ctx, created.Name, meta.GetOptions{})).To(HaveField("Data", HaveKeyWithValue("key", "second")))
	})

	It("issues tokens for service accounts and accepts them", func(ctx SpecContext) {
		accounts := client.CoreV1().ServiceAccounts(core.NamespaceDefault)
		_, err := accounts.Create(ctx, &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "robot"}}, meta.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		request, err := accounts.CreateToken(ctx, "robot", &authentication.TokenRequest{}, meta.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		review := &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: request.Status.Token}}
		review, err = client.AuthenticationV1().TokenReviews().Create(ctx, review, meta.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.User.Username).To(Equal("system:serviceaccount:default:robot"))
	})

	It("restarts on the same port with its data after the API server was killed", func(ctx SpecContext) {
		maps := client.CoreV1().ConfigMaps(core.NamespaceDefault)
		_, err := maps.Create(ctx, configMap("killed"), meta.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		plane.KillAPIServer()
		Expect(processes(dirOf(plane))).To(And(HaveKey("etcd"), Not(HaveKey("kube-apiserver"))))
		_, err = maps.Get(ctx, "killed", meta.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("connection refused")))

		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Expect(maps.Get(ctx, "killed", meta.GetOptions{})).To(HaveField("Data", HaveKeyWithValue("key", "first")))
		Expect(plane.Err()).NotTo(HaveOccurred())
	})

	It("runs only one API server", func(ctx SpecContext) {
		Expect(plane.StartAPIServer(ctx)).To(MatchError(controlplane.ErrRunning))
	})

	It("leaves no process and no file behind", func(ctx SpecContext) {
		Expect(processes(dirOf(plane))).To(HaveLen(2))
		Expect(plane.Stop(ctx)).To(Succeed())
		Expect(processes(dirOf(plane))).To(BeEmpty())
		Expect(dirOf(plane)).NotTo(BeADirectory())
		Expect(plane.Err()).NotTo(HaveOccurred())
		Expect(plane.StartAPIServer(ctx)).To(MatchError(controlplane.ErrStopped))
	})
})

var _ = Describe("A control plane in a named folder", func() {
	It("keeps data, port and certificates over a restart", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		plane := start(ctx, controlplane.Options{Dir: dir})
		old, err := clientcmd.LoadFromFile(plane.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		_, err = clientOf(plane.Kubeconfig()).CoreV1().ConfigMaps(core.NamespaceDefault).
			Create(ctx, configMap("kept"), meta.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(plane.Stop(ctx)).To(Succeed())
		Expect(processes(dir)).To(BeEmpty())

		start(ctx, controlplane.Options{Dir: dir})
		config, err := clientcmd.NewDefaultClientConfig(*old, nil).ClientConfig()
		Expect(err).NotTo(HaveOccurred())
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(core.NamespaceDefault).
			Get(ctx, "kept", meta.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("stops in time although clients watch", func(ctx SpecContext) {
		plane := start(ctx, controlplane.Options{Dir: GinkgoT().TempDir()})
		watch, err := clientOf(plane.Kubeconfig()).CoreV1().ConfigMaps(core.NamespaceDefault).Watch(ctx, meta.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		patient, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		Expect(plane.Stop(patient)).To(Succeed())
		Eventually(watch.ResultChan()).Should(BeClosed())
	})

	It("excludes a second one", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		start(ctx, controlplane.Options{Dir: dir})
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Assets: binaries})
		Expect(err).To(MatchError(filelock.ErrInUse))
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
