package curlctl_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("identities --secrets", func() {
	var (
		client                kubernetes.Interface
		config                *rest.Config
		namespace, kubeconfig string
	)
	BeforeEach(func(ctx SpecContext) {
		client, config, namespace = inCluster(ctx)
		kubeconfig = account(ctx, client, config, namespace)
	})

	run := func(ctx context.Context, args ...string) result {
		return runAs(ctx, "curlctl", time.Now, append([]string{
			"identities", "--kubeconfig", kubeconfig, "--secrets", namespace, "--prefix", "demo", "--tls-host", "demo-nats," +
				namespace,
		}, args...)...)
	}
	secrets := func(ctx context.Context) map[string]map[string][]byte {
		GinkgoHelper()
		list := suitetest.Must(client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{}))
		all := map[string]map[string][]byte{}
		for _, s := range list.Items {
			all[s.Name] = s.Data
		}
		return all
	}

	It("makes Secrets with minimal rights, and keeps them on the next call", func(ctx SpecContext) {
		Eventually(ctx, func() string { return run(ctx).err }).Should(BeEmpty(), "the rights are in force")
		before := secrets(ctx)
		Expect(before).To(HaveLen(len(secretsOf()) + 2))
		signs := map[string]string{"watcher": "signing.nk", "writer": "signing.pub", "fetcher": "signing.pub"}
		for _, name := range secretsOf() {
			keys := 2
			if file := signs[name]; file != "" {
				keys = 3
				Expect(before["demo-nats-"+name]).To(HaveKey(file), "and not the other one")
			}
			Expect(before["demo-nats-"+name]).
				To(And(HaveLen(keys), HaveKey("nkey"), HaveKeyWithValue("ca.crt", before["demo-nats-ca"]["ca.crt"])))
		}
		Expect(before["demo-nats-server"]).
			To(And(HaveLen(4), HaveKey("identities.conf"), HaveKey("tls.crt"), HaveKey("tls.key"), HaveKey("ca.crt")),
				"and not the key of the CA")
		again := run(ctx, "--no-headers")
		Expect(strings.Count(again.out, " kept ")).To(Equal(len(seeds()) + 2))
		Expect(again.out).To(ContainSubstring("secret/" + namespace + "/demo-nats-watcher"))
		Expect(secrets(ctx)).To(Equal(before))
	})

	It("replaces a removed Secret, and updates the others", func(ctx SpecContext) {
		Eventually(ctx, func() string { return run(ctx).err }).Should(BeEmpty(), "the rights are in force")
		before := secrets(ctx)
		for _, name := range []string{"demo-nats-viewer", "demo-nats-ca"} {
			Expect(client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		}
		Expect(run(ctx).out).To(And(MatchRegexp(`viewer +made`), MatchRegexp(`writer +kept`), MatchRegexp(`ca +made`),
			MatchRegexp(`tls +renewed`)))
		after := secrets(ctx)
		Expect(after["demo-nats-viewer"]["nkey"]).NotTo(Equal(before["demo-nats-viewer"]["nkey"]))
		Expect(after["demo-nats-writer"]["nkey"]).To(Equal(before["demo-nats-writer"]["nkey"]))
		Expect(after["demo-nats-server"]["identities.conf"]).NotTo(Equal(before["demo-nats-server"]["identities.conf"]))
		for name := range after {
			Expect(after[name]["ca.crt"]).To(Equal(after["demo-nats-ca"]["ca.crt"]), name)
		}
	})

	It("makes the same Secrets in concurrent calls", func(ctx SpecContext) {
		Eventually(ctx, func() string { return run(ctx).err }).Should(BeEmpty(), "the rights are in force")
		for name := range secrets(ctx) {
			Expect(client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				defer GinkgoRecover()
				Expect(run(ctx).err).To(BeEmpty())
			})
		}
		group.Wait()
		before := secrets(ctx)
		Expect(strings.Count(run(ctx, "--no-headers").out, " kept ")).To(Equal(len(seeds()) + 2))
		Expect(secrets(ctx)).To(Equal(before))
	})

	It("reports missing rights in one sentence", func(ctx SpecContext) {
		r := runAs(ctx, "curlctl", time.Now, "identities", "--kubeconfig", kubeconfig, "--secrets", "default")
		Expect(r.code).To(Equal(4))
		Expect(r.err).To(And(ContainSubstring("read Secret default/curl-me-that-nats-"), ContainSubstring("forbidden")))
		Expect(strings.Count(r.err, "\n")).To(Equal(1))
	})
})

// secretsOf returns the identities with a Secret. The signing key has none of its own.
func secretsOf() []string {
	return slices.DeleteFunc(seeds(), func(name string) bool { return name == "signing" })
}

// account creates a service account with minimal rights, and returns its kubeconfig.
func account(ctx context.Context, client kubernetes.Interface, config *rest.Config, namespace string) string {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "identities", Namespace: namespace}
	Expect(client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	names := []string{"demo-nats-ca", "demo-nats-server"}
	for _, name := range secretsOf() {
		names = append(names, "demo-nats-"+name)
	}
	Expect(client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "update"}, ResourceNames: names},
	}}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	Expect(client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: namespace}},
	}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	token := suitetest.Must(client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, meta.Name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{}))

	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile,
	}
	file.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}
	file.CurrentContext = "x"
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*file, path)).To(Succeed())
	return path
}
