package curlctl_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// seeds returns the names of all identities with a seed.
func seeds() []string {
	return []string{"watcher", "fetcher", "writer", "setup", "viewer", "replayer", "admin", "sys", "signing"}
}

var _ = Describe("identities --out", func() {
	var dir string
	BeforeEach(func() { dir = filepath.Join(GinkgoT().TempDir(), "identities") })

	at := func(ctx context.Context, now time.Time, args ...string) result {
		return runAs(ctx, "curlctl", func() time.Time { return now }, append([]string{"identities", "--out", dir},
			args...)...)
	}
	makes := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		r := at(ctx, time.Now(), args...)
		Expect(r.code).To(BeZero(), r.err)
		return r.out
	}
	contents := func() map[string]string {
		GinkgoHelper()
		entries := suitetest.Must(os.ReadDir(dir))
		all := map[string]string{}
		for _, e := range entries {
			all[e.Name()] = string(suitetest.Must(os.ReadFile(filepath.Join(dir, e.Name()))))
		}
		return all
	}
	mode := func(file string) os.FileMode {
		GinkgoHelper()
		return suitetest.Must(os.Stat(filepath.Join(dir, file))).Mode().Perm()
	}
	certificate := func() *x509.Certificate {
		GinkgoHelper()
		pair := suitetest.Must(tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))
		return pair.Leaf
	}

	It("makes private files, and keeps them on the next call", func(ctx SpecContext) {
		Expect(makes(ctx, "--tls-host", "nats,localhost,127.0.0.1")).
			To(MatchRegexp(`watcher +made +U[A-Z2-7]{55} +.*watcher\.nk`))
		before := contents()
		for _, name := range seeds() {
			Expect(before).To(HaveKey(name + ".nk"))
			Expect(mode(name + ".nk")).To(BeEquivalentTo(0o600))
		}
		Expect(mode("ca.key")).To(BeEquivalentTo(0o600))
		Expect(mode("tls.key")).To(BeEquivalentTo(0o600))
		Expect(mode("")).To(BeEquivalentTo(0o700))
		Expect(mode("identities.conf")).To(BeEquivalentTo(0o644))
		Expect(before).To(HaveLen(len(seeds())+6), "no temporary files are left")

		again := makes(ctx, "--tls-host", "127.0.0.1,nats,localhost", "--no-headers")
		Expect(strings.Count(again, " kept ")).To(Equal(len(seeds()) + 2))
		Expect(contents()).To(Equal(before))
		for name, text := range before {
			if strings.HasSuffix(name, ".nk") {
				Expect(again).NotTo(ContainSubstring(strings.TrimSpace(text)), "a seed is never printed")
			}
		}
	})

	It("replaces an identity whose file was removed", func(ctx SpecContext) {
		makes(ctx)
		before := contents()
		Expect(before).NotTo(HaveKey("ca.crt"), "TLS was not requested")
		Expect(os.Remove(filepath.Join(dir, "viewer.nk"))).To(Succeed())
		out := makes(ctx, "--no-headers")
		Expect(strings.Count(out, " kept ")).To(Equal(len(seeds()) - 1))
		after := contents()
		Expect(after["identities.conf"]).NotTo(Equal(before["identities.conf"]))
		delete(before, "viewer.nk")
		delete(before, "identities.conf")
		for name, text := range before {
			Expect(after[name]).To(Equal(text), name)
		}
	})

	It("replaces the signing key, and still trusts the previous one until a revocation", func(ctx SpecContext) {
		trusted := func() []string { return strings.Fields(contents()["signing.pub"]) }
		renew := func() {
			Expect(os.Remove(filepath.Join(dir, "signing.nk"))).To(Succeed())
			Expect(makes(ctx)).To(MatchRegexp(`signing +made`))
		}
		makes(ctx)
		first := trusted()
		Expect(first).To(HaveLen(1))
		renew()
		second := trusted()
		Expect(second).To(HaveExactElements(Not(Equal(first[0])), Equal(first[0])))
		makes(ctx)
		Expect(trusted()).To(Equal(second), "kept")
		renew()
		Expect(trusted()).To(HaveExactElements(Not(BeElementOf(second)), Equal(second[0])), "at most two")

		signer := suitetest.Must(signature.LoadSigner(filepath.Join(dir, "signing.nk")))
		verifier := suitetest.Must(signature.LoadVerifier(filepath.Join(dir, "signing.pub")))
		want := &v1.Want{Key: "k"}
		signer.Sign(want)
		Expect(verifier.Verify(want)).To(Succeed())

		before := contents()
		Expect(makes(ctx, "--revoke-signing-key")).To(And(MatchRegexp(`signing +made`), MatchRegexp(`watcher +kept`)))
		Expect(trusted()).To(HaveExactElements(Not(BeElementOf(strings.Fields(before["signing.pub"])))))
		Expect(contents()["signing.nk"]).NotTo(Equal(before["signing.nk"]))
		Expect(contents()["watcher.nk"]).To(Equal(before["watcher.nk"]))
	})

	It("fills a directory per identity, without files of others", func(ctx SpecContext) {
		shares := GinkgoT().TempDir()
		share := func(name string) []string {
			GinkgoHelper()
			entries := suitetest.Must(os.ReadDir(filepath.Join(shares, name)))
			var files []string
			for _, e := range entries {
				files = append(files, e.Name())
			}
			return files
		}
		to := func(name string) string { return name + "=" + filepath.Join(shares, name) }
		makes(ctx, "--tls-host", "nats", "--for", to("watcher")+","+to("fetcher"), "--for", to("writer"), "--for",
			to("server"))
		Expect(share("watcher")).To(ConsistOf("watcher.nk", "ca.crt", "signing.nk"))
		Expect(share("fetcher")).To(ConsistOf("fetcher.nk", "ca.crt", "signing.pub"))
		Expect(share("writer")).To(ConsistOf("writer.nk", "ca.crt", "signing.pub"))
		Expect(share("server")).To(ConsistOf("identities.conf", "ca.crt", "tls.crt", "tls.key"))
		all := contents()
		for _, name := range []string{"watcher", "fetcher", "writer", "server"} {
			for _, file := range share(name) {
				text := suitetest.Must(os.ReadFile(filepath.Join(shares, name, file)))
				Expect(string(text)).To(Equal(all[file]), "%s of %s", file, name)
			}
		}

		Expect(os.Remove(filepath.Join(dir, "fetcher.nk"))).To(Succeed())
		makes(ctx, "--tls-host", "nats", "--for", to("fetcher"))
		renewed := suitetest.Must(os.ReadFile(filepath.Join(shares, "fetcher", "fetcher.nk")))
		Expect(string(renewed)).To(And(Equal(contents()["fetcher.nk"]), Not(Equal(all["fetcher.nk"]))),
			"a new one is handed out, too")
	})

	It("refuses a directory with files of another identity", func(ctx SpecContext) {
		one := filepath.Join(GinkgoT().TempDir(), "one")
		r := at(ctx, time.Now(), "--for", "fetcher="+dir)
		Expect(r.code).NotTo(BeZero())
		Expect(r.err).To(MatchRegexp(`hand out to fetcher: \S+ does not belong to fetcher \(` +
			`remove it, or choose another directory\)`))
		r = at(ctx, time.Now(), "--for", "fetcher="+one, "--for", "writer="+one)
		Expect(r.code).NotTo(BeZero())
		Expect(r.err).To(ContainSubstring("does not belong to writer"))
	})

	It("makes the same files in concurrent calls", func(ctx SpecContext) {
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				defer GinkgoRecover()
				makes(ctx, "--tls-host", "nats")
			})
		}
		group.Wait()
		before := contents()
		Expect(strings.Count(makes(ctx, "--tls-host", "nats", "--no-headers"), " kept ")).To(Equal(len(seeds()) + 2))
		Expect(contents()).To(Equal(before))
	})

	It("renews the certificate in time or for other hosts, with the same authority", func(ctx SpecContext) {
		makes(ctx, "--tls-host", "nats,127.0.0.1,*.nats.svc")
		first, ca := certificate(), contents()["ca.crt"]
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM([]byte(ca))).To(BeTrue())
		for _, host := range []string{"nats", "127.0.0.1", "a.nats.svc"} {
			Expect(first.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})).Error().NotTo(HaveOccurred(), host)
		}
		later := first.NotAfter.Add(-first.NotAfter.Sub(first.NotBefore)/3 - time.Hour)
		Expect(at(ctx, later, "--tls-host", "nats,127.0.0.1,*.nats.svc").code).To(BeZero())
		Expect(certificate().SerialNumber).To(Equal(first.SerialNumber), "not due yet")
		Expect(at(ctx, later.Add(2*time.Hour), "--tls-host", "nats,127.0.0.1,*.nats.svc").out).To(MatchRegexp(`tls +renewed`))
		renewed := certificate()
		Expect(renewed.NotAfter).To(BeTemporally(">", first.NotAfter))
		makes(ctx, "--tls-host", "other")
		Expect(certificate().DNSNames).To(ConsistOf("other"))
		Expect(contents()["ca.crt"]).To(Equal(ca))
	})

	DescribeTable("refuses unusable files, and keeps them", func(ctx SpecContext, file, text, said string) {
		makes(ctx, "--tls-host", "nats")
		Expect(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)).To(Succeed())
		before := contents()
		r := at(ctx, time.Now(), "--tls-host", "nats")
		Expect(r.code).To(Equal(1))
		Expect(r.err).To(And(ContainSubstring(file), ContainSubstring(said)))
		Expect(strings.Count(r.err, "\n")).To(Equal(1))
		Expect(contents()).To(Equal(before))
	},
		Entry("no seed", "writer.nk", "nonsense", "holds no NKey seed"),
		Entry("an empty seed", "writer.nk", "", "holds no NKey seed"),
		Entry("a seed of an account", "writer.nk", "SAANDJXFOCLMBGULXSTCHOCLGTBAGMXIBBPTWMNAYZLHQAHMS27E26E2UQ", "holds no"),
		Entry("no certificate", "ca.crt", "nonsense", "holds no certificate"),
	)

	DescribeTable("refuses invalid arguments", func(ctx SpecContext, said string, args ...string) {
		r := runAs(ctx, "curlctl", time.Now, append([]string{"identities"}, args...)...)
		Expect(r.code).NotTo(BeZero())
		Expect(r.err).To(ContainSubstring(said))
		Expect(strings.Count(r.err, "\n")).To(Equal(1))
	},
		Entry("with two destinations", "either --out DIR or --secrets NAMESPACE", "--out", "x", "--secrets", "y"),
		Entry("with an unknown identity", `--for: "reader" is not one of server, watcher`, "--out", "/nonexistent/x",
			"--for", "reader=/nonexistent/y"),
		Entry("with --for and Secrets", "--for needs --out", "--secrets", "x", "--for", "watcher=/nonexistent/y"),
		Entry("with an invalid host", `"not a host" is neither`, "--out", "/nonexistent/x", "--tls-host", "not a host"),
		Entry("without write permission", "/proc/nobody", "--out", "/proc/nobody"),
	)
})

var _ = Describe("identities --secrets", func() {
	var (
		client                kubernetes.Interface
		namespace, kubeconfig string
	)
	BeforeEach(func(ctx SpecContext) {
		client, _, namespace = inCluster(ctx)
		kubeconfig = account(ctx, client, namespace)
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
		Expect(r.err).To(ContainSubstring("this Kubernetes user may not read Secret default/curl-me-that-nats-"))
		Expect(strings.Count(r.err, "\n")).To(Equal(1))
	})
})

// secretsOf returns the identities with a Secret. The signing key has none of its own.
func secretsOf() []string {
	return slices.DeleteFunc(seeds(), func(name string) bool { return name == "signing" })
}

// account grants a user minimal rights, and returns the user's kubeconfig.
func account(ctx context.Context, client kubernetes.Interface, namespace string) string {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "identities", Namespace: namespace}
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
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: namespace}},
	}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	file := suitetest.Must(clientcmd.LoadFromFile(os.Getenv("KUBECONFIG")))
	for _, admin := range file.AuthInfos {
		admin.Impersonate = namespace
	}
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*file, path)).To(Succeed())
	return path
}
