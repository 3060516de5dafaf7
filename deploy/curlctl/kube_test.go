package curlctl_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// inCluster creates a namespace. Without an API server it skips the spec.
func inCluster(ctx context.Context) (client kubernetes.Interface, config *rest.Config, namespace string) {
	GinkgoHelper()
	if kubeconfig == "" {
		Skip("KUBECONFIG is not set: `make test` starts an API server when there is none")
	}
	GinkgoT().Setenv("KUBECONFIG", kubeconfig)
	config = kubetest.Config(GinkgoTB())
	web := suitetest.Must(rest.HTTPClientFor(config))
	DeferCleanup(func() { utilnet.CloseIdleConnectionsFor(web.Transport) })
	client = suitetest.Must(kubernetes.NewForConfigAndClient(config, web))
	return client, config, kubetest.Namespace(ctx, GinkgoTB(), client, "curlctl-", nil)
}

// notReady sets the status of a Watcher.
func notReady(
	ctx context.Context, watchers *watchv1.Namespaced, w *watchv1.Watcher, fetched, message string,
) {
	GinkgoHelper()
	w.Status = watchv1.WatcherStatus{Fetched: fetched, Conditions: []metav1.Condition{{
		Type: watchv1.ConditionReady, Status: metav1.ConditionFalse, Reason: watchv1.ReasonTargetExists, Message: message,
		LastTransitionTime: metav1.Date(2026, time.November, 22, 20, 0, 0, 0, time.UTC),
	}}}
	Expect(watchers.UpdateStatus(ctx, w, metav1.UpdateOptions{})).Error().NotTo(HaveOccurred())
}

// configMap creates a ConfigMap.
func configMap(ctx context.Context, client kubernetes.Interface, namespace string, meta metav1.ObjectMeta) {
	GinkgoHelper()
	object := &corev1.ConfigMap{ObjectMeta: meta}
	Expect(client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})).Error().
		NotTo(HaveOccurred())
}

// checkFile writes a manifest, and returns a function that runs check for it.
func checkFile(ctx context.Context, text string) func(args ...string) result {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
	Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return func(args ...string) result {
		return runAs(ctx, "curlctl", time.Now, append([]string{"check", "-f", file, "--allow-cidr=127.0.0.0/8,::1/128"},
			args...)...)
	}
}

var _ = Describe("A ConfigMap", func() {
	var (
		w         *world
		client    kubernetes.Interface
		config    *rest.Config
		namespace string
	)
	BeforeEach(func(ctx SpecContext) {
		client, config, namespace = inCluster(ctx)
		w = newWorld(ctx)
	})

	create := func(ctx context.Context, name string, annotations map[string]string) {
		GinkgoHelper()
		configMap(ctx, client, namespace, metav1.ObjectMeta{Name: name, Annotations: annotations})
	}
	scrub := func(text string) string {
		return strings.ReplaceAll(text, namespace, "team-a")
	}

	It("is shown as one timeline", func(ctx SpecContext) {
		create(ctx, "cool", map[string]string{
			"x-kv8s.io/curl-me-that": "my.data=https://a.example.com/x?token=secret",
			"x-kv8s.io/curl-refresh": "1d",
			"x-kv8s.io/curl-status": `{"my.data":{"url":"https://a.example.com/x","sha256":"` + strings.Repeat("ab", 32) +
				`","size":12,"changedAt":"` + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) + `"}}`,
		})
		key := pipeline.Key{Namespace: namespace, Name: "cool", Key: "my.data"}
		want := w.timed(ctx, key, "https://a.example.com/x?token=secret", &v1.Due{Cause: v1.Cause_CAUSE_RECHECK},
			50*time.Minute+40*time.Second)
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT)
		out := w.ok(ctx, "status", namespace+"/cool")
		for _, said := range []string{
			"Fetches:", "created", "written", "12 bytes, sha256 abababababab…", "wanted",
			"gave up", "failure 1: Timeout after 6 attempts", "scheduled", "recheck",
		} {
			Expect(out).To(ContainSubstring(said))
		}
		Expect(strings.Index(out, "written")).To(BeNumerically("<", strings.Index(out, "gave up")))
		Expect(strings.Index(out, "gave up")).To(BeNumerically("<", strings.Index(out, "recheck")))
		Expect(out).NotTo(ContainSubstring("secret"))
		var view struct {
			Asks []struct{ Key, URL, Refresh string }
		}
		Expect(json.Unmarshal([]byte(w.ok(ctx, "status", namespace+"/cool", "-o", "json")), &view)).To(Succeed())
		Expect(view.Asks).To(HaveLen(1))
		Expect(view.Asks[0].Key).To(Equal("my.data"))
		Expect(view.Asks[0].URL).To(Equal("https://a.example.com/x?…"))
		Expect(view.Asks[0].Refresh).To(Equal("1d"))
		Expect(w.run(ctx, "status", namespace+"/none").code).To(Equal(5))
		Expect(w.run(ctx, "status", namespace+"/cool", "--kubeconfig=/nonexistent").code).To(Equal(3))
	})

	It("cannot steer the terminal with its annotations", func(ctx SpecContext) {
		text := strings.ToValidUTF8(steering, "")
		status := suitetest.Must(json.Marshal(map[string]any{"k": map[string]any{
			"error": text, "message": text,
			"since": "2026-01-02T03:04:05Z",
		}}))
		create(ctx, "hostile", map[string]string{
			"x-kv8s.io/curl-me-that": "k=https://example.com/ " + text,
			"x-kv8s.io/curl-status":  string(status),
		})
		for _, format := range []string{"table", "wide", "json"} {
			Expect(w.ok(ctx, "status", namespace+"/hostile", "-o", format)).To(ContainSubstring("PWNED")) // see runAs
		}
		w.run(ctx, "check", namespace+"/hostile")
	})

	It("is explained if its annotations are invalid", func(ctx SpecContext) {
		create(ctx, "cool", map[string]string{
			"x-kv8s.io/curl-me-that": "my.data=ftp://a.example.com/ other=https://a.example.com/missing",
			"x-kv8s.io/curl-refrsh":  "10m",
			"x-kv8s.io/curl-status": `{"*":{"error":"InvalidAnnotation","message":"m","since":"2026-01-02T03:04:05Z"},` +
				`"other":{"error":"BadStatus","httpStatus":404,` +
				`"message":"a.example.com responded with 404","since":"2026-01-02T03:04:05Z","attempts":1,"gaveUp":true}}`,
		})
		out := w.ok(ctx, "status", namespace+"/cool")
		Expect(out).To(And(
			MatchRegexp(`not followed since +- +InvalidAnnotation\n`),
			ContainSubstring("BadStatus: a.example.com responded with 404, 1 attempt when it was reported"),
			ContainSubstring("annotation curl-me-that, pair 1 (key my.data): "+
				"the scheme must be http or https; use http:// or https://"),
			ContainSubstring("annotation x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?"),
		))
	})

	It("is shown below the conditions of its Watcher, under either name", func(ctx SpecContext) {
		watchers := kubetest.Watchers(ctx, GinkgoTB(), config).In(namespace)
		created := suitetest.Must(kubetest.ApplyWatcher(ctx, watchers, "rules", "configData: {LEVEL: warn}"))
		Expect(w.ok(ctx, "status", namespace+"/rules")).To(ContainSubstring("rules-config (does not exist)"))
		notReady(ctx, watchers, created, "0/0", "ConfigMap rules-config exists already")
		labels := map[string]string{"watch.x-kv8s.io/watcher": "rules"}
		configMap(ctx, client, namespace, metav1.ObjectMeta{Name: "rules-config", Labels: labels})
		for _, name := range []string{"rules", "rules-config"} {
			Expect(scrub(w.ok(ctx, "status", namespace+"/"+name))).To(MatchRegexp(
				`(?s)Watcher: +team-a/rules\nReady: +False, TargetExists: ConfigMap rules-config exists.*\n` +
					`ConfigMap: +team-a/rules-config\n.*created`))
		}
		Expect(w.ok(ctx, "status", namespace+"/rules", "-o", "json")).To(ContainSubstring(`"reason": "TargetExists"`))
		configMap(ctx, client, namespace, metav1.ObjectMeta{Name: "claims", Labels: labels})
		Expect(w.ok(ctx, "status", namespace+"/claims")).NotTo(ContainSubstring("Watcher"), "anybody may set the label")
	})

	It("that is never written is listed as refused, also without NATS", func(ctx SpecContext) {
		asks := func(name, status string, more ...string) {
			GinkgoHelper()
			annotations := map[string]string{
				"x-kv8s.io/curl-me-that": "k=https://a.example.com/" + name,
				"x-kv8s.io/curl-status":  status,
			}
			for i := 0; i < len(more); i += 2 {
				annotations["x-kv8s.io/"+more[i]] = more[i+1]
			}
			create(ctx, name, annotations)
		}
		refused := func(name, reason, message string) {
			asks(name, `{"k":{"url":"https://a.example.com/`+name+`","error":"`+reason+`","message":"`+message+
				`","since":"2026-01-02T03:04:05Z","gaveUp":true}}`)
		}
		refused("immutable", "Immutable", "the ConfigMap is immutable")
		refused("exists", "KeyExists", "key k already exists")
		asks("suspended", "", "curl-suspend", "true")
		asks("mistyped", "", "curl-refresh", "5 minutes")
		asks("written", `{"k":{"url":"https://a.example.com/written","sha256":"`+strings.Repeat("ab", 32)+`"}}`)
		asks("answered", `{"k":{"url":"https://a.example.com/answered","sha256":"`+strings.Repeat("ab", 32)+
			`","fence":"99999999999999.1"}}`)
		for _, name := range []string{"written", "answered"} {
			Expect(client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"k":""}}`),
				metav1.PatchOptions{FieldManager: annotation.FieldManager})).Error().NotTo(HaveOccurred())
		}
		byAudit := func(want *v1.Want) { want.Cause = v1.Cause_CAUSE_AUDIT }
		for _, name := range []string{"immutable", "written", "answered"} { // fetched well
			key := pipeline.Key{Namespace: namespace, Name: name, Key: "k"}
			due := &v1.Due{Cause: v1.Cause_CAUSE_REFRESH, FreshUntil: timestamppb.New(time.Now().Add(time.Hour))}
			if name == "answered" { // the writer has not got the new body yet
				due.Cached = &v1.Cached{Sha256: strings.Repeat("cd", 32)}
			}
			w.timed(ctx, key, "https://a.example.com/"+name, due, time.Hour, byAudit)
		}

		failing := w.ok(ctx, "failing", "-n", namespace, "-o", "wide", "--no-headers")
		Expect(strings.Count(failing, "\n")).To(Equal(4), failing)
		Expect(failing).To(And(
			MatchRegexp(`pending +NotWritten .* answered +k `),
			MatchRegexp(`refused +Immutable .* immutable +k .* the ConfigMap is immutable\n`),
			MatchRegexp(`refused +KeyExists .* exists +k .* key k already exists\n`),
			MatchRegexp(`failing +InvalidAnnotation .* mistyped +- .* '5' is not a duration`),
		))
		Expect(w.ok(ctx, "failing", "-n", namespace, "--reason=KeyExists", "-o", "name")).
			To(Equal("key/" + namespace + "/exists/k\n"))
		Expect(w.ok(ctx, "wants", "-n", namespace, "--no-headers")).
			To(And(MatchRegexp(`ignored .* suspended +k\n`), MatchRegexp(`ok .* written +k\n`)))
		Expect(w.ok(ctx, "status", namespace+"/immutable")).
			To(MatchRegexp(`Key k: +refused Immutable for .*: the ConfigMap is immutable`))
		Expect(w.ok(ctx, "status", namespace+"/suspended")).To(MatchRegexp(`Ignored: +it is suspended`))

		By("without NATS, as a tenant has none")
		alone := runAs(ctx, "curlctl", time.Now, "failing", "-n", namespace, "--no-headers", "--nats-url=nats://127.0.0.1:1")
		Expect(alone.code).To(BeZero(), alone.err)
		Expect(alone.out).To(And(MatchRegexp(`refused +Immutable .* immutable +k`),
			MatchRegexp(`refused +KeyExists .* exists +k`),
			MatchRegexp(`failing +InvalidAnnotation .* mistyped`), Not(ContainSubstring("written"))))
		Expect(alone.err).To(And(ContainSubstring("this is what the ConfigMaps say"), ContainSubstring("port-forward")))
	})

	It("has keys of another installation, which no command takes for ours", func(ctx SpecContext) {
		site := newOrigin()
		site.up.Store(true)
		entry := func(key, asker string) string {
			return fmt.Sprintf(`%q:{"url":%q,"sha256":%q,"size":9,"annotation":%q}`, key, site.URL+"/"+key,
				pipeline.Digest("two"), asker)
		}
		create(ctx, "shared", map[string]string{
			"x-kv8s.io/curl-me-that": "ours=" + site.URL + "/ours theirs=" + site.URL + "/theirs",
			"x-kv8s.io/curl-expect":  "theirs=heldSize == 0",
			"x-kv8s.io/curl-status":  "{" + entry("ours", "") + "," + entry("theirs", "example.com/curl") + "}",
			"example.com/curl":       "theirs=" + site.URL + "/theirs",
		})
		create(ctx, "taken-over", map[string]string{
			"x-kv8s.io/curl-me-that": "ours=" + site.URL + "/ours",
			"x-kv8s.io/curl-status":  "{" + entry("ours", "example.com/curl") + "}",
		})
		name := namespace + "/shared"
		for _, key := range []string{"ours", "theirs"} {
			w.history(ctx, pipeline.Key{Namespace: namespace, Name: "shared", Key: key}, "one", "two")
		}
		Expect(flat(w.ok(ctx, "history", name))).To(MatchRegexp("current https://a.example.com/two .*/one$"))
		for _, args := range [][]string{
			{"history", name, "theirs"},
			{"diff", name, "theirs"},
			{"rollback", name, "theirs", "--now"},
			{"unpin", name, "theirs", "--now"},
		} {
			r := w.run(ctx, args...)
			Expect(r.code).To(Equal(1), r.out)
			Expect(r.err).To(ContainSubstring("key theirs is kept in sync for annotation example.com/curl"))
		}
		object := suitetest.Must(client.CoreV1().ConfigMaps(namespace).Get(ctx, "shared", metav1.GetOptions{}))
		Expect(object.Annotations).NotTo(HaveKey("x-kv8s.io/curl-sha256"))
		Expect(flat(w.run(ctx, "check", name, "--fetch", "--allow-cidr=127.0.0.0/8,::1/128").out)).To(And(
			MatchRegexp("theirs KeyExists key theirs is kept in sync for annotation example.com/curl"),
			ContainSubstring("theirs true curl-expect: heldSize == 0")))
		Expect(flat(w.run(ctx, "doctor", "-n", namespace).out)).To(ContainSubstring("1 key of annotation example.com/curl, " +
			"which stay as they are: " + name + "/theirs To fix it: if no installation reads it, " +
			"run `curlctl hand-over --from example.com/curl --to x-kv8s.io/curl-me-that`"))
		Expect(w.run(ctx, "doctor", "--annotation-keys=x").code).To(Equal(2))
	})

	It("is counted by a hand-over that fails after it", func(ctx SpecContext) {
		status := `{"k":{"url":"https://a.example.com/","sha256":"` + pipeline.Digest("x") + `","annotation":"a.a/x"}}`
		create(ctx, "first", map[string]string{"x-kv8s.io/curl-status": status})
		// The other annotation is longer, so it has no room in this object.
		const maximum, other = 256 << 10, "x-kv8s.io/curl-status" + "filler"
		create(ctx, "second", map[string]string{
			"x-kv8s.io/curl-status": status, "filler": strings.Repeat("x", maximum-len(other)-len(status)),
		})
		r := w.run(ctx, "hand-over", "--from=a.a/x", "--to=example.com/curl", "-n", namespace)
		Expect(r.code).To(Equal(1), r.err)
		Expect(r.out).To(Equal("Handed over 1 key.\n"))
		Expect(r.err).To(ContainSubstring("patch ConfigMap " + namespace + "/second: "))
	})

	It("is rolled back to its former content, not to one that was only offered", func(ctx SpecContext) {
		create(ctx, "rules", map[string]string{
			"x-kv8s.io/curl-me-that": "k=https://a.example.com/two",
			"x-kv8s.io/curl-status":  `{"k":{"url":"https://a.example.com/two","sha256":"` + pipeline.Digest("two") + `"}}`,
		})
		w.history(ctx, pipeline.Key{Namespace: namespace, Name: "rules", Key: "k"}, "one", offered, "two")
		Expect(w.ok(ctx, "diff", namespace+"/rules", "k")).To(ContainSubstring("-one"))
		Expect(w.ok(ctx, "rollback", namespace+"/rules", "k")).To(ContainSubstring(pipeline.Digest("one")))
	})

	It("is pinned by the annotation that counts", func(ctx SpecContext) {
		pin := "k=" + pipeline.Digest("two")
		create(ctx, "twice", map[string]string{
			"x-kv8s.io/curl-me-that": "k=https://a.example.com/", "x-kv8s.io/curl-sha256": pin,
			"x-k8s.io/curl-sha256": "k=" + pipeline.Digest("one"), "example.com/curl-sha256": "k=" + pipeline.Digest("one"),
		})
		w.history(ctx, pipeline.Key{Namespace: namespace, Name: "twice", Key: "k"}, "two")
		for range 8 { // maps have a random order
			Expect(w.ok(ctx, "rollback", namespace+"/twice", "k", "--to=1")).To(Equal("x-kv8s.io/curl-sha256: " + pin + "\n"))
		}
	})

	It("has one content by the beginning of its digest", func(ctx SpecContext) {
		create(ctx, "new", map[string]string{"x-kv8s.io/curl-me-that": "k=https://a.example.com/"})
		r := w.run(ctx, "history", namespace+"/new")
		Expect(r.code).To(Equal(5))
		Expect(r.err).To(HavePrefix("curlctl: no key of ConfigMap " + namespace + "/new was fetched or written yet"))

		create(ctx, "rules", map[string]string{"x-kv8s.io/curl-me-that": "k=https://a.example.com/"})
		key := pipeline.Key{Namespace: namespace, Name: "rules", Key: "k"}
		var bodies []string // two with the same beginning
		for i := 0; len(bodies) < 2; i++ {
			if body := fmt.Sprint(i); strings.HasPrefix(pipeline.Digest(body), "a") {
				bodies = append(bodies, body)
			}
		}
		w.history(ctx, key, bodies...)
		rollback := func(to string) result { return w.run(ctx, "rollback", namespace+"/rules", "k", "--to="+to) }
		r = rollback("a")
		Expect(r.code).To(Equal(2))
		Expect(r.err).To(ContainSubstring("several versions of key k have a digest that begins with a, give more of it"))
		Expect(rollback(pipeline.Digest(bodies[0])[:12]).out).To(ContainSubstring(pipeline.Digest(bodies[0])))
		Expect(rollback("b").code).To(Equal(5))

		By("waiting only after an edit, and until an interrupt")
		waiting := []string{"rollback", namespace + "/rules", "k", "--to=1", "--wait"}
		Expect(w.run(ctx, waiting...).code).To(Equal(2))
		interrupted, interrupt := context.WithCancel(ctx)
		go func() {
			defer GinkgoRecover()
			defer interrupt()
			Eventually(ctx, func() (map[string]string, error) {
				object, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "rules", metav1.GetOptions{})
				return object.Annotations, err
			}).Should(HaveKey("x-kv8s.io/curl-sha256"))
		}()
		r = w.run(interrupted, append(waiting, "--now")...)
		Expect(r.code).To(Equal(6))
		Expect(r.err).To(Equal("curlctl: interrupted\n"))
	})

	It("cannot be compared without the permission to read its bodies", func(ctx SpecContext) {
		w = configured(ctx, `authorization { users: [ { user: app, password: p },
			{ user: blind, password: p, permissions: { publish: { deny: "$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>" } } } ] }`)
		create(ctx, "rules", map[string]string{
			"x-kv8s.io/curl-me-that": "k=https://a.example.com/two",
			"x-kv8s.io/curl-status":  `{"k":{"url":"https://a.example.com/two","sha256":"` + pipeline.Digest("two") + `"}}`,
		})
		w.history(ctx, pipeline.Key{Namespace: namespace, Name: "rules", Key: "k"}, "one", "two")
		r := w.as("blind").run(ctx, "diff", namespace+"/rules", "k")
		Expect(r.code).To(Equal(4), r.err)
		Expect(r.err).To(ContainSubstring("this NATS user may not publish to"))
	})

	It("is checked without NATS", func(ctx SpecContext) {
		create(ctx, "bad", map[string]string{"x-kv8s.io/curl-me-that": "not correct"})
		create(ctx, "idle", nil)
		create(ctx, "inner", map[string]string{"x-kv8s.io/curl-me-that": "a=http://127.0.0.1:80/"})
		w.server.Stop()
		r := w.run(ctx, "check", namespace+"/bad")
		Expect(r.code).To(Equal(7))
		Expect(scrub(r.out)).To(ContainSubstring("annotation value 'not correct' does not match expected format key=url"))
		r = w.run(ctx, "check", namespace+"/inner")
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(ContainSubstring("AddressDenied"))
		create(ctx, "half", map[string]string{"x-kv8s.io/curl-me-that": "a=http://127.0.0.1:80/ b=ftp://example.com/"})
		r = w.run(ctx, "check", namespace+"/half", "--allow-cidr=127.0.0.0/8")
		Expect(r.code).To(Equal(7))
		Expect(scrub(r.out)).To(And(ContainSubstring("would be fetched"), ContainSubstring(
			"annotation curl-me-that, pair 2 (key b): the scheme must be http or https; use http:// or https://")))
		ignored := corev1.ObjectReference{Kind: "Secret", Namespace: namespace, Name: "rules-api"}
		Expect(client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "ignored"}, InvolvedObject: ignored, Reason: "CredentialsIgnored",
			Message: "it names no URL",
		}, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
		Expect(flat(w.ok(ctx, "check", namespace+"/idle"))).To(And(ContainSubstring("ignored"),
			ContainSubstring("CredentialsIgnored Secret rules-api: it names no URL")))
		Expect(w.ok(ctx, "check", namespace+"/inner", "--allow-cidr=127.0.0.0/8")).To(ContainSubstring("would be fetched"))
	})
})
