package local_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestLocal(t *testing.T) { suitetest.Run(t, "the assembled system") }

// parse returns the configuration for a command line.
func parse(args ...string) (local.Config, error) {
	c := local.DefaultConfig()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.BindFlags(fs)
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// start runs the system until stop is called, or the spec ends, and waits until it is ready.
func start(ctx context.Context, config local.Config) (system local.System, stop func()) {
	GinkgoHelper()
	running, cancel := context.WithCancel(ctx)
	ready, ended := make(chan local.System, 1), make(chan error, 1)
	go func() {
		ended <- local.Run(running, config, GinkgoWriter, func(_ context.Context, s local.System) error {
			ready <- s
			return nil
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		Eventually(ended).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
	DeferCleanup(stop)
	Eventually(ready).WithTimeout(time.Minute).Should(Receive(&system))
	return system, stop
}

// freeAddress returns a loopback address that no socket listens on.
func freeAddress() string {
	GinkgoHelper()
	l := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// status returns the status of the response from an address and a path.
func status(ctx context.Context, address, path string) int {
	GinkgoHelper()
	request := suitetest.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody))
	response := suitetest.Must(http.DefaultClient.Do(request))
	defer response.Body.Close()
	return response.StatusCode
}

var _ = Describe("The system in one process", func() {
	It("fills a ConfigMap of the given cluster, serves health and metrics, and stops on request", func(ctx SpecContext) {
		rest := kubetest.Config(GinkgoTB())
		cluster := kubernetes.NewForConfigOrDie(rest)
		namespace := kubetest.Namespace(ctx, GinkgoTB(), cluster, "local-", nil)
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("hello there"))
		}))
		DeferCleanup(origin.Close)

		health, metrics := freeAddress(), freeAddress()
		config := suitetest.Must(parse("--data-dir", GinkgoT().TempDir(), "--namespaces", namespace,
			"--allow-cidr", "127.0.0.0/8,::1/128", "--listen", health, "--metrics-listen", metrics))
		system, stop := start(ctx, config)
		Expect(system).To(Equal(local.System{Kubeconfig: os.Getenv("KUBECONFIG")}))
		Expect(status(ctx, health, "/readyz")).To(Equal(http.StatusOK))
		Expect(status(ctx, health, "/metrics")).To(Equal(http.StatusNotFound))
		Expect(status(ctx, metrics, "/metrics")).To(Equal(http.StatusOK))
		Expect(status(ctx, metrics, "/readyz")).To(Equal(http.StatusNotFound))

		maps := cluster.CoreV1().ConfigMaps(namespace)
		suitetest.Must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "mine", Annotations: map[string]string{"x-kv8s.io/curl-me-that": "mydata=" + origin.URL},
		}}, metav1.CreateOptions{}))
		Eventually(func() (map[string]string, error) {
			cm, err := maps.Get(ctx, "mine", metav1.GetOptions{})
			return cm.Data, err
		}).Should(Equal(map[string]string{"mydata": "hello there"}))

		stop()
	})

	It("returns the error of the ready function", func(ctx SpecContext) {
		config := suitetest.Must(parse("--data-dir", "", "--namespaces", "local-none"))
		errReady := errors.New("cannot print")
		Expect(local.Run(ctx, config, GinkgoWriter, func(context.Context, local.System) error { return errReady })).
			To(MatchError(errReady))
	})

	It("says that its folder is temporary, and removes it also if the reader of its output ends", func(ctx SpecContext) {
		folder, log := GinkgoT().TempDir(), gbytes.NewBuffer()
		GinkgoT().Setenv("TMPDIR", folder)
		GinkgoT().Setenv("XDG_DATA_HOME", "")
		GinkgoT().Setenv("HOME", "")
		config := suitetest.Must(parse("--namespaces", "local-none"))
		config.Output = log
		err := local.Run(ctx, config, GinkgoWriter, func(context.Context, local.System) error {
			return syscall.Kill(os.Getpid(), syscall.SIGPIPE)
		})
		Expect(err).To(Or(BeNil(), MatchError(context.Canceled)))
		Expect(log).To(gbytes.Say("everything is kept in " + folder + "/curl-me-that-.* only until the end"))
		Expect(os.ReadDir(folder)).To(BeEmpty())
	})

	DescribeTable("rejects invalid flags with one sentence", func(flag, value, sentence string) {
		_, err := parse(flag, value)
		Expect(err).To(MatchError(ContainSubstring(sentence)))
	},
		Entry("a namespace", "--namespaces", "not a name", `--namespaces: "not a name"`),
		Entry("a scheme", "--default-scheme", "gopher", "gopher"),
		Entry("an address range", "--allow-cidr", "10.0.0.0/99", "10.0.0.0/99"),
	)

	It("does not share its data folder", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		other := suitetest.Must(controlplane.OpenFolder(dir, "curl-me-that"))
		DeferCleanup(other.Close)
		config := suitetest.Must(parse("--data-dir", dir))
		Expect(local.Run(ctx, config, GinkgoWriter, nil)).
			To(And(MatchError(controlplane.ErrInUse), MatchError(ContainSubstring(dir))))
	})

	It("names an unreadable kubeconfig, and leaves no server behind", func(ctx SpecContext) {
		health := freeAddress()
		config := suitetest.Must(parse("--data-dir", "", "--kubeconfig", "/nowhere/config", "--listen", health))
		Expect(local.Run(ctx, config, GinkgoWriter, nil)).To(MatchError(ContainSubstring("read kubeconfig /nowhere/config")))
		Expect(suitetest.Must(net.Listen("tcp", health)).Close()).To(Succeed())
	})

	It("of its own control plane leaves the address of NATS for curlctl, until it has none", func(ctx SpecContext) {
		GinkgoT().Setenv("KUBECONFIG", "")
		dir := GinkgoT().TempDir()
		beside := filepath.Join(dir, "control-plane", "nats.json")
		system, stop := start(ctx, suitetest.Must(parse("--data-dir", dir, "--nats-listen", "127.0.0.1:0")))
		Expect(os.ReadFile(beside)).To(MatchJSON(`{"url":"` + system.NATS + `"}`))
		stop()
		_, stop = start(ctx, suitetest.Must(parse("--data-dir", dir)))
		Expect(beside).NotTo(BeAnExistingFile())
		stop()
	})
})

var _ = It("Watchers in one process are served with their ConfigMaps and, if enabled, sidecars", func(ctx SpecContext) {
	rest := kubetest.Config(GinkgoTB())
	kubetest.NeedMutatingPolicies(GinkgoTB(), rest)
	cluster := kubernetes.NewForConfigOrDie(rest)
	namespace := kubetest.Namespace(ctx, GinkgoTB(), cluster, "local-",
		map[string]string{watchv1.InjectLabel: watchv1.InjectValue})
	suitetest.Must(cluster.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) { removePolicies(ctx, cluster) })
	config := suitetest.Must(parse("--data-dir", GinkgoT().TempDir(), "--namespaces", namespace, "--sidecars"))
	start(ctx, config)
	suitetest.Must(kubetest.ApplyWatcher(ctx, kubetest.Watchers(ctx, GinkgoTB(), rest).In(namespace), "w",
		"configData: {a: b}, container: {name: c, image: i}"))
	Eventually(ctx, func() map[string]string {
		cm, err := cluster.CoreV1().ConfigMaps(namespace).Get(ctx, "w-config", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return cm.Data
	}).WithTimeout(time.Minute).Should(Equal(map[string]string{"a": "b"}))
	Eventually(ctx, func(ctx context.Context) ([]corev1.Container, error) {
		pod, err := cluster.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{watchv1.InjectAnnotation: "w"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "p", Image: "i"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return nil, err
		}
		return pod.Spec.InitContainers, nil
	}).WithTimeout(time.Minute).Should(ConsistOf(HaveField("Name", "c")))
})

// removePolicies removes the policies that --sidecars installed.
func removePolicies(ctx context.Context, cluster *kubernetes.Clientset) {
	GinkgoHelper()
	api := cluster.AdmissionregistrationV1()
	for _, name := range []string{"curl-me-that-inject", "curl-me-that-watchers"} {
		Expect(api.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Expect(api.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	}
	Expect(api.MutatingAdmissionPolicyBindings().Delete(ctx, "curl-me-that-inject", metav1.DeleteOptions{})).To(Succeed())
	Expect(api.MutatingAdmissionPolicies().Delete(ctx, "curl-me-that-inject", metav1.DeleteOptions{})).To(Succeed())
}
