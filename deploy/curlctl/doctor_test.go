package curlctl_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

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

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// configured runs a broker with a configuration, and creates the streams as its user app.
func configured(ctx context.Context, text string) *world {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true, ConfigFile: config})
	w := &world{server: s}
	w.use(ctx, natstest.Connect(GinkgoTB(), s, nats.UserInfo("app", "p")))
	return w.as("app")
}

// contexts creates contexts of the nats command until the spec ends.
func contexts(texts map[string]string) {
	GinkgoHelper()
	home := GinkgoT().TempDir()
	GinkgoT().Setenv("XDG_CONFIG_HOME", home)
	Expect(os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700)).To(Succeed())
	for name, text := range texts {
		Expect(os.WriteFile(filepath.Join(home, "nats", "context", name+".json"), []byte(text), 0o600)).To(Succeed())
	}
}

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

var _ = Describe("A JetStream domain", func() {
	It("is used if the context names it, as is an API prefix", func(ctx SpecContext) {
		w := configured(ctx, `jetstream { domain: hub }
			accounts {
				APP { jetstream: enabled, users: [ { user: app, password: p } ] }
			}`)
		w.failing(ctx, cm(1), "https://a.example.com/")
		base := `{"url":"` + w.server.URL() + `","user":"app","password":"p"`
		contexts(map[string]string{
			"domain": base + `,"jetstream_domain":"hub"}`,
			"prefix": base + `,"jetstream_api_prefix":"$JS.hub.API"}`,
			"wrong":  base + `,"jetstream_domain":"nowhere"}`,
		})
		run := func(args ...string) result { return runAs(ctx, "curlctl", time.Now, args...) }
		for _, name := range []string{"domain", "prefix"} {
			for _, args := range [][]string{
				{"failures"},
				{"failures", "show", "1"},
				{"wants"},
				{"status"},
				{"replay", "1"},
				{"pause"},
				{"resume"},
				{"setup", "--dry-run"},
			} {
				r := run(append(args, "--context="+name)...)
				Expect(r.code).To(BeZero(), "%v by %s: %s", args, name, r.err)
			}
			Expect(flat(run("doctor", "--context="+name).out)).To(MatchRegexp("permissions +ok"))
		}
		By("trying no other server if the selected one does not respond")
		r := run("failures", "--context=wrong")
		Expect(r.code).NotTo(BeZero())
		Expect(strings.Count(r.err, "\n")).To(Equal(1), r.err)
	})
})

var _ = Describe("doctor --kubernetes", func() {
	It("names the binding that a service account lacks", func(ctx SpecContext) {
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
})
