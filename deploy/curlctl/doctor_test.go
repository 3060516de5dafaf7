package curlctl_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("doctor", func() {
	It("finds overdue timers", func(ctx SpecContext) {
		w := newWorld(ctx)
		for i, fires := range []time.Duration{10 * time.Minute, time.Hour} { // the clock of the spec is 20 minutes ahead
			w.timed(ctx, cm(i), "https://a.example.com/", &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}, fires)
		}
		r := w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("timers +bad +1 timer of 2 overdue To fix it: restart the leader"))
	})

	It("finds a replica that is behind or offline", func(ctx SpecContext) {
		servers, addresses := natstest.Cluster(GinkgoTB())
		nc := suitetest.Must(nats.Connect(addresses, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))) // the default one prints
		DeferCleanup(nc.Close)
		js := suitetest.Must(jetstream.New(nc))
		Eventually(func() (int64, error) { return pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: 3}) }).
			WithTimeout(time.Minute).ShouldNot(BeZero()) // the servers may have to elect leaders again
		c := &world{server: servers[0], js: js, connect: []string{"--nats-url", addresses}}
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +ok +CURL_REQUESTS has 3 replicas"))
		servers[2].Stop()
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +bad +the replica of CURL_REQUESTS on natstest-2 is behind or offline " +
				"To fix it: check that server"))
		Expect(c.run(ctx, "doctor").code).To(Equal(7))
	})

	It("finds a paused or missing consumer", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.ok(ctx, "pause")
		Expect(flat(w.run(ctx, "doctor").out)).
			To(MatchRegexp("consumer fetcher +warning +paused, 0 messages waiting To fix it: run `curlctl resume`"))
		Expect(w.js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("streams +bad +.*fetcher.* To fix it: run `curlctl setup`"))
	})
})

var _ = Describe("setup", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("creates what doctor finds missing", func(ctx SpecContext) {
		Expect(w.ok(ctx, "setup")).To(ContainSubstring("are up to date."))
		Expect(w.js.DeleteStream(ctx, pipeline.DeadLetters)).To(Succeed())
		r := w.run(ctx, "setup", "--dry-run")
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(ContainSubstring("stream CURL_FAILURES does not exist"))
		r = w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("streams +bad +stream CURL_FAILURES does not exist " +
			"To fix it: run `curlctl setup`"))
		Expect(r.out).To(MatchRegexp("consumer fetcher +bad +no fetcher reads from it"))
		Expect(w.ok(ctx, "setup")).To(ContainSubstring("Updated streams and consumers."))
		var report string
		Eventually(func() string { report = w.run(ctx, "doctor").out; return report }).
			Should(ContainSubstring("responds within"), "a busy machine is slow")
		golden("doctor", report)
	})

	It("raises limits without reporting a difference afterwards", func(ctx SpecContext) {
		w.ok(ctx, "setup", "--max-results-bytes=5368709120", "--max-failures-bytes=2147483648", "--failures-max-age=30d")
		Expect(w.ok(ctx, "setup", "--dry-run")).To(ContainSubstring("are up to date."))
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("streams +ok"))
		Expect(w.ok(ctx, "setup")).To(ContainSubstring("are up to date."))
		results := suitetest.Must(w.js.Stream(ctx, pipeline.Results))
		Expect(results.CachedInfo().Config.MaxBytes).To(BeEquivalentTo(5 << 30))
	})
})

var _ = It("doctor --kubernetes names the binding that a service account lacks", func(ctx SpecContext) {
	client, config, namespace := inCluster(ctx)
	objects := suitetest.Must(dynamic.NewForConfig(config))
	// The rights of the chart, with names and a namespace of this spec.
	text := suitetest.Must(os.ReadFile("../docker/manifests/rights.yaml"))
	renamed := strings.NewReplacer("curl-me-that-", namespace+"-", "namespace: curl-me-that", "namespace: "+namespace)
	for document := range strings.SplitSeq(renamed.Replace(string(text)), "\n---\n") {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
		resource := map[string]string{
			"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings",
			"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
		}[o.GetKind()]
		if resource == "" {
			continue
		}
		kind := o.GroupVersionKind()
		at := objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}).
			Namespace(o.GetNamespace())
		body := suitetest.Must(o.MarshalJSON())
		_, err := at.Patch(ctx, o.GetName(), types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "spec", Force: new(true)})
		Expect(err).NotTo(HaveOccurred(), o.GetName())
		DeferCleanup(func(ctx SpecContext) { _ = at.Delete(ctx, o.GetName(), metav1.DeleteOptions{}) })
	}
	w := newWorld(ctx)
	doctor := func() result {
		return w.run(ctx, "doctor", "--kubernetes="+namespace+"/"+namespace, "--kubeconfig", os.Getenv("KUBECONFIG"))
	}
	Eventually(ctx, func() int { return doctor().code }).Should(Equal(0), "the API server knows the bindings")
	Expect(strings.Count(doctor().out, "has its rights")).To(Equal(3))

	Expect(doctor().out).To(MatchRegexp("^rights of watcher  ok       .*\nrights of writer   ok       "))
	Expect(doctor().out).NotTo(ContainSubstring("egress proxy"))
	Expect(client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fetcher", Labels: map[string]string{
			"app.kubernetes.io/component": "fetcher", "app.kubernetes.io/instance": namespace,
		}},
		Spec: corev1.PodSpec{
			ServiceAccountName: namespace + "-watcher",
			Containers:         []corev1.Container{{Name: "fetcher", Image: "any", Args: []string{"--proxy-resolves"}}},
		},
	}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
	Expect(doctor().code).To(Equal(0))
	Expect(flat(doctor().out)).To(ContainSubstring(
		"names are checked by fetchers, and addresses by the egress proxy: let it deny private addresses"))

	Expect(client.RbacV1().ClusterRoleBindings().Delete(ctx, namespace+"-writer", metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, func() int { return doctor().code }).Should(Equal(7))
	Expect(flat(doctor().out)).To(And(
		ContainSubstring(namespace+"-writer may not get configmaps, patch configmaps, create events, get events, "+
			"patch events"),
		ContainSubstring("restore ClusterRoleBinding "+namespace+"-writer")))

	Expect(client.CoreV1().ServiceAccounts(namespace).Delete(ctx, namespace+"-watcher",
		metav1.DeleteOptions{})).To(Succeed())
	Expect(doctor().out).To(ContainSubstring("there is no service account"))
})

var _ = It("The shipped permissions match those that the doctor checks", func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	Expect(runAs(ctx, "curlctl", time.Now, "identities", "--out", filepath.Join(dir, "identities")).code).To(BeZero())
	for _, name := range []string{"accounts.conf", "limits.conf"} {
		text := suitetest.Must(os.ReadFile(filepath.Join("..", "nats", name)))
		Expect(os.WriteFile(filepath.Join(dir, name), text, 0o600)).To(Succeed())
	}
	options := suitetest.Must(server.ProcessConfigFile(filepath.Join(dir, "accounts.conf")))
	text := suitetest.Must(os.ReadFile(filepath.Join(dir, "identities", "identities.conf")))
	for _, identity := range broker.Identities() {
		m := regexp.MustCompile(`NKEY_` + strings.ToUpper(identity.Name) + `: "(\w+)"`).FindStringSubmatch(string(text))
		Expect(m).NotTo(BeNil(), identity.Name)
		i := slices.IndexFunc(options.Nkeys, func(u *server.NkeyUser) bool { return u.Nkey == m[1] })
		Expect(i).NotTo(Equal(-1), identity.Name)
		given := options.Nkeys[i].Permissions
		needed := slices.Clone(identity.Publish)
		for i, subject := range needed {
			needed[i] = strings.Replace(subject, ".USER.>", "."+m[1]+".>", 1)
		}
		Expect(given.Publish.Allow).To(ConsistOf(needed), identity.Name)
		Expect(given.Subscribe.Allow).To(ConsistOf(identity.Subscribe), identity.Name)
		Expect(given.Publish.Deny).To(BeEmpty())
	}
})
