package controlplane_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// manifests has the manifests of docker compose, and definitions the CRD of Watchers, which it applies first.
const (
	manifests   = "../../docker/manifests"
	definitions = "../../../proto/watch/v1alpha1/crd"
)

func client(config *clientcmdapi.Config) kubernetes.Interface {
	GinkgoHelper()
	return suitetest.Must(kubernetes.NewForConfig(suitetest.Must(controlplane.ClientConfig(config))))
}

// patch patches the sample.
func patch(ctx context.Context, c kubernetes.Interface, change string) error {
	_, err := c.CoreV1().ConfigMaps("default").
		Patch(ctx, "joke", types.MergePatchType, []byte(change), metav1.PatchOptions{})
	return err
}

var _ = Describe("Access to a cluster", Ordered, func() {
	var kubeconfig string

	// It cannot use the shared API server, because another suite applies and deletes objects with the same names.
	BeforeAll(func(ctx SpecContext) { kubeconfig = start(ctx, controlplane.Options{}).Kubeconfig() })

	It("grants exactly what the manifests of docker compose contain", func(ctx SpecContext) {
		administrator := suitetest.Must(controlplane.Load(kubeconfig, ""))
		config := suitetest.Must(controlplane.ClientConfig(administrator))
		Expect(controlplane.Ready(ctx, config)).To(Succeed())
		for range 2 { // the second time, it updates the objects
			applied := suitetest.Must(controlplane.Apply(ctx, config, []string{definitions, manifests}))
			Expect(applied).To(ContainElements(
				"Namespace/curl-me-that", "ServiceAccount/curl-me-that-watcher", "ClusterRole/curl-me-that-writer",
				"ValidatingAdmissionPolicyBinding/curl-me-that-writer", "ValidatingAdmissionPolicyBinding/curl-me-that-keeper",
				"ConfigMap/joke", "CustomResourceDefinition/watchers.watch.x-kv8s.io", "Watcher/jokes",
			))
		}

		as := map[string]kubernetes.Interface{}
		for _, name := range []string{"watcher", "writer", "keeper"} {
			own := suitetest.Must(controlplane.Account(ctx, administrator, "curl-me-that", "curl-me-that-"+name))
			Expect(own.AuthInfos).To(HaveLen(1))
			as[name] = client(own)
		}
		tries := map[string]func(context.Context, kubernetes.Interface) error{
			"list ConfigMaps": func(ctx context.Context, c kubernetes.Interface) error {
				_, err := c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
				return err
			},
			"report in ConfigMaps": func(ctx context.Context, c kubernetes.Interface) error {
				return patch(ctx, c, `{"metadata":{"annotations":{"x-kv8s.io/curl-status":"{}"}}}`)
			},
			"change unannotated keys": func(ctx context.Context, c kubernetes.Interface) error {
				return patch(ctx, c, `{"data":{"other":"value"}}`)
			},
			"create ConfigMaps": func(ctx context.Context, c kubernetes.Interface) error {
				_, err := c.CoreV1().ConfigMaps("default").
					Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forbidden"}}, metav1.CreateOptions{})
				return err
			},
			"delete ConfigMaps": func(ctx context.Context, c kubernetes.Interface) error {
				return c.CoreV1().ConfigMaps("default").Delete(ctx, "joke", metav1.DeleteOptions{})
			},
			"list Secrets": func(ctx context.Context, c kubernetes.Interface) error {
				_, err := c.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
				return err
			},
		}
		allowed := map[string][]string{
			"watcher": {"list ConfigMaps"}, "writer": {"report in ConfigMaps"},
			"keeper": {"list ConfigMaps"},
		}
		for name, c := range as {
			for what, try := range tries {
				if slices.Contains(allowed[name], what) {
					Eventually(func() error { return try(ctx, c) }).Should(Succeed(), "%s: %s", name, what)
				} else {
					// A policy takes effect only some time after it was applied.
					Eventually(func() error { return try(ctx, c) }).
						Should(MatchError(apierrors.IsForbidden, "forbidden"), "%s: %s", name, what)
				}
			}
		}
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
		administrator := suitetest.Must(controlplane.Load(kubeconfig, ""))
		Expect(controlplane.Account(ctx, administrator, "default", "nobody")).Error().
			To(MatchError(ContainSubstring("request a token of service account default/nobody")))
	})

	It("writes files that only the owner can read, for any URL of the API server", func() {
		administrator := suitetest.Must(controlplane.Load(kubeconfig, ""))
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
})
