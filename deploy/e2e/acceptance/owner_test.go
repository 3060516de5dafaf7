package acceptance_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is kept until its owner removes it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		cm.EventuallyReports(ctx, "mydata", "KeyExists")
		cm.Put(ctx, "mydata", "theirs as before")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs as before"))
		Expect(page.Hits()).To(BeZero())
		Expect(cm.Writes(ctx)).To(Equal(1), "the status about the existing key")
		Expect(cm.Status(ctx, "mydata").Why().Message).
			To(HavePrefix("key mydata already exists and is not managed by curl-me-that"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
		cm.EventuallyReports(ctx, "mydata", "")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited or removed by hand is repaired each time, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "drift", "as asked", world.Holding("other", "theirs"))
		for i, change := range []func(){
			func() { cm.Put(ctx, "mydata", "changed by hand") },
			func() { cm.Put(ctx, "mydata", "once more") },
			func() { cm.Drop(ctx, "mydata") },
		} {
			change()
			cm.EventuallyHasData(ctx, "mydata", "as asked")
			w.EventuallyQuiet(ctx)
			Expect(cm.Reasons(ctx)).To(And(Not(BeEmpty()), HaveEach("Drifted")))
			Expect(cm.Writes(ctx)).To(Equal(2 + i))
		}
	})

	It("is pruned when its pair is removed, and other keys stay", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "pruned", world.Asking("a="+a.URL()+" b="+b.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")

		cm.Ask(ctx, "b="+b.URL())
		cm.EventuallyLacks(ctx, "a")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"b": "B", "other": "theirs"}))

		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "b")
		w.EventuallyQuiet(ctx)
		left := cm.Get(ctx)
		Expect(left.Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(left.Annotations).NotTo(HaveKey(annotation.StatusKey))
		Expect(b.Hits()).To(Equal(1))
	})
})

// Copies and backups of an object include its status annotation.
var _ = Describe("A copy of a ConfigMap with its status", func() {
	It("is filled and refreshed despite the higher fence of the other cluster", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/copied").Says("now")
		// The other cluster had an older object, whose fence is higher.
		before := status.Status{Keys: map[string]status.Entry{"mydata": {
			URL: page.URL(), SHA256: pipeline.Digest("then"), Size: 4, ChangedAt: time.Now().Add(-time.Hour),
			UIDMark: "another", Fence: status.Fence{Epoch: time.Now().AddDate(1, 0, 0).UnixMilli(), Seq: 1_000_000},
		}}}
		cm := w.Create(ctx, "copied", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "1s"),
			world.Holding("mydata", "then"), world.Annotated(annotation.StatusKey, before.String()))
		cm.EventuallyHasData(ctx, "mydata", "now")
		page.Says("later")
		cm.EventuallyHasData(ctx, "mydata", "later")
		Expect(cm.Status(ctx, "mydata").UIDMark).To(Equal(status.UIDMark(cm.Get(ctx).UID)))
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.HasEvents(ctx)
	})
})

// certificate is that of an authority, in PEM.
var certificate = func() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}()

// goodBodies meet the rules of the recipes, by key.
var goodBodies = map[string]string{
	"ca.pem": certificate + certificate, "node-exporter.json": `{"panels":[1]}`, "etcd.yaml": "# comment\ngroups: []",
	"default.tmpl": `{{ define "__alertmanager" }}Alertmanager{{ end }}`, "cloudflare-v4": "192.0.2.0/24\n198.51.100.0/22",
	"cloudflare-v6": "2001:db8::/32\n", "github.json": `{"hooks":["192.0.2.0/24"]}`,
	"google.json": `{"keys":[{"kid":"a"}]}`,
	"drop.txt":    "; comment\n192.0.2.0/24 ; SBL1\n", "settings.yaml": "a: b",
}

// recipe reads a recipe and points its URLs to the origin, with the same paths. It returns the body of each
// key.
func recipe(w *world.World, file string) (object *corev1.ConfigMap, bodies map[string]string) {
	GinkgoHelper()
	text := suitetest.Must(os.ReadFile(file))
	object, bodies = &corev1.ConfigMap{}, map[string]string{}
	Expect(yaml.UnmarshalStrict(text, object)).To(Succeed(), file)
	grammar := suitetest.Must(annotation.New(annotation.Defaults()))
	request, err := grammar.Parse(object.Annotations)
	Expect(err).NotTo(HaveOccurred(), file)
	asks := ""
	for _, pair := range request.Pairs {
		address, err := url.Parse(pair.URL)
		Expect(err).NotTo(HaveOccurred(), file)
		bodies[pair.Key] = goodBodies[pair.Key]
		asks += pair.Key + "=" + w.Origin.Page(address.Path).Says(bodies[pair.Key]).URL() + "\n"
	}
	object.Namespace, object.Annotations[annotation.DefaultKey] = w.Namespace, asks
	return object, bodies
}

var _ = It("The recipes are accepted by the API server, and filled", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	files := suitetest.Must(filepath.Glob("../../samples/recipes/*.yaml"))
	Expect(len(files)).To(BeNumerically(">=", 10))
	for _, file := range files {
		object, bodies := recipe(w, file)
		Expect(object.Annotations).To(HaveKey("x-kv8s.io/curl-expect"), file)
		_, err := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Create(ctx, object,
			metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred(), file)
		cm := w.Create(ctx, object.Name, func(o *corev1.ConfigMap) { o.ObjectMeta = object.ObjectMeta })
		for key, body := range bodies {
			cm.EventuallyHasData(ctx, key, body)
		}
	}
})

var _ = Describe("A second installation that reads another annotation", func() {
	const other = "other.example/curl"

	// begin starts both installations. The first one has filled the key mydata of a ConfigMap.
	begin := func(ctx context.Context) (w *world.World, cm *world.ConfigMap, second []*world.Service) {
		w = env.World(ctx, world.Audited(world.Options{}))
		_, cm = w.Fill(ctx, "first", "A")
		DeferCleanup(w.History.AllBySpec)
		second = w.Beside(ctx, other)
		Eventually(second[0].Log.Matching).WithArguments("ignoring keys of annotations").Should(HaveLen(1))
		return w, cm, second
	}
	curlctl := func(ctx context.Context, w *world.World, args ...string) string {
		args = append(args, "--kubeconfig="+w.Cluster.Kubeconfig, "--namespace="+w.Namespace)
		out, err := exec.CommandContext(ctx, w.Program("curlctl"), args...).CombinedOutput()
		Expect(err).To(Or(BeNil(), MatchError("exit status 7")), "%s", out)
		return strings.Join(strings.Fields(string(out)), " ")
	}

	It("takes a key over once only its annotation asks, and others by curlctl hand-over", func(ctx SpecContext) {
		w, cm, _ := begin(ctx)
		page := w.Origin.Page("/first")
		w.Watcher().ShouldStop(ctx)
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			annotation.DefaultKey: nil, other: "mydata=" + page.URL(),
		}}})
		Eventually(ctx, func() string { return cm.Status(ctx, "mydata").Annotation }).Should(Equal(other))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "A"))

		old := status.Status{Keys: map[string]status.Entry{"old": {URL: page.URL(), SHA256: cm.Status(ctx, "mydata").SHA256}}}
		left := w.Create(ctx, "left", world.Holding("old", "value"), world.Annotated(annotation.StatusKey, old.String()))
		Expect(curlctl(ctx, w, "doctor", "--nats-url="+w.Broker(), "--annotation-keys="+other)).To(ContainSubstring(
			"1 key of annotation x-kv8s.io/curl-me-that, which stay as they are: " + w.Namespace + "/left/old"))
		Expect(curlctl(ctx, w, "hand-over", "--from="+annotation.DefaultKey, "--to="+other)).To(Equal("Handed over 1 key."))
		Eventually(ctx, func() map[string]string { return left.Get(ctx).Annotations }).
			ShouldNot(HaveKey(annotation.StatusKey), "the second installation removed the entry")
		Expect(left.Get(ctx).Data).To(HaveKeyWithValue("old", "value"), "nobody wrote this value for the URL")
	})
})

var _ = Describe("A key whose owner the metadata does not prove", func() {
	It("is ours by its digest after more than ten managers wrote the object", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		DeferCleanup(w.History.AllBySpec)
		_, cm := w.Fill(ctx, "many", "A")
		many := func(value string) {
			for i := range 12 {
				suitetest.Must(w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Patch(ctx, cm.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{"l%d":%q}}}`, i, value),
					metav1.PatchOptions{FieldManager: fmt.Sprintf("manager-%d", i)}))
				w.EventuallyCaughtUp(ctx)
				w.History.BySpec(w.History.Latest(cm.Name))
			}
		}
		many("once")
		w.EventuallyQuiet(ctx)
		Expect(suitetest.Must(annotation.ParseOwners(cm.Get(ctx).ManagedFields)).Of("mydata").State).
			To(Equal(annotation.Unknown), "owner of the key")
		cm.HasEvents(ctx)

		By("being repaired although the entry of its editor was merged, too")
		cm.Put(ctx, "mydata", "by hand")
		many("again")
		cm.EventuallyHasData(ctx, "mydata", "A")
		many("more")
		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "mydata")
		Expect(cm.Reasons(ctx)).NotTo(ContainElements("KeyExists"))
	})

	DescribeTable("is compared with the live value by", func(ctx SpecContext, fetch func(context.Context, *world.World,
		*world.ConfigMap),
	) {
		w := env.World(ctx, world.Options{})
		DeferCleanup(w.History.AllBySpec)
		_, cm := w.Fill(ctx, "trusted", "right")
		// The status of this object trusts the last write of the other manager.
		w.Watcher().ShouldStop(ctx)
		cm.Put(ctx, "mydata", "wrong")
		object := cm.Get(ctx)
		trusted := suitetest.Must(status.Parse(object.Annotations[annotation.StatusKey]))
		entry := trusted.Keys["mydata"]
		entry.Drift = suitetest.Must(annotation.ParseOwners(object.ManagedFields)).Of("mydata").Fingerprint
		trusted.Keys["mydata"] = entry
		cm.Annotate(ctx, annotation.StatusKey, trusted.String())
		w.Watcher().Restart(ctx)
		w.EventuallyQuiet(ctx)
		fetch(ctx, w, cm)
		cm.EventuallyHasData(ctx, "mydata", "right")
	},
		Entry("curl-now", func(ctx context.Context, _ *world.World, cm *world.ConfigMap) {
			cm.Annotate(ctx, "x-kv8s.io/curl-now", "now")
		}),
		Entry("refetch", func(ctx context.Context, w *world.World, cm *world.ConfigMap) {
			cm.Annotate(ctx, "x-kv8s.io/curl-refresh", "1h")
			w.EventuallyQuiet(ctx)
			out, err := exec.CommandContext(ctx, w.Program("curlctl"), "refetch", w.Namespace+"/"+cm.Name,
				"--nats-url="+w.Broker()).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
		}),
	)
})

var _ = Describe("A suspended ConfigMap", func() {
	It("becomes an ordinary one by one edit that removes the annotation and the status", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "kept", "A")
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			annotation.DefaultKey: nil, annotation.StatusKey: nil,
		}}})
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "A"}))
		Expect(cm.Writes(ctx)).To(Equal(1))
		cm.HasEvents(ctx)
	})
})

var _ = Describe("An earlier content", func() {
	It("comes back with one command, one write and no GET, and newer content waits for the approval", func(
		ctx SpecContext,
	) {
		w := env.World(ctx, world.Options{})
		name := w.Namespace + "/rules"
		curlctl := func(args ...string) string {
			GinkgoHelper()
			args = append([]string{args[0], name}, args[1:]...)
			p := run("curlctl", []string{"KUBECONFIG=" + env.Cluster.Kubeconfig}, append(args, "--nats-url="+w.Broker())...)
			Expect(p.Wait(ctx)).To(BeZero(), p.Log.String())
			return p.Log.String()
		}
		page := w.Origin.Page("/rules").Says("one")
		cm := w.Create(ctx, "rules", world.Asking("rules.json="+page.URL()),
			world.Annotated("x-kv8s.io/curl-refresh", "1h"))
		// changed counts the writes of the services, not those of curlctl.
		changed := func(ctx context.Context) int {
			GinkgoHelper()
			w.EventuallyCaughtUp(ctx)
			for _, life := range w.History.Lives() {
				pin := ""
				for _, v := range life.Versions {
					if now := v.Object.Annotations["x-kv8s.io/curl-sha256"]; now != pin {
						pin = now
						w.History.BySpec(v.Object)
					}
				}
			}
			return w.History.Writes(cm.Name)
		}
		DeferCleanup(func(ctx SpecContext) { changed(ctx) })
		// pins runs a command that changes the pin, after which the key has the body.
		pins := func(body string, args ...string) string {
			GinkgoHelper()
			gets, writes, began := page.Hits(), changed(ctx), time.Now()
			out := curlctl(append(args, "--now", "--wait")...)
			AddReportEntry(args[0], fmt.Sprintf("%s, with the start of curlctl", time.Since(began)))
			Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("rules.json", body))
			w.EventuallyQuiet(ctx)
			Expect([]int{page.Hits() - gets, changed(ctx) - writes}).To(Equal([]int{0, 1}), "GETs and writes")
			return out
		}
		cm.EventuallyHasData(ctx, "rules.json", "one")
		for _, body := range []string{"two", "three"} {
			page.Says(body)
			curlctl("refetch")
			cm.EventuallyHasData(ctx, "rules.json", body)
		}
		Expect(curlctl("history")).To(And(ContainSubstring("current"), ContainSubstring(pipeline.Digest("one")[:12])))
		Expect(curlctl("diff", "rules.json")).To(And(ContainSubstring("-two"), ContainSubstring("+three")))

		page.Fails(500)
		Expect(pins("two", "rollback", "rules.json", "--to", "2")).To(
			ContainSubstring("x-kv8s.io/curl-sha256: rules.json=" + pipeline.Digest("two")))

		page.Says("four")
		for range 2 {
			curlctl("refetch")
			Eventually(func() string { return cm.Status(ctx, "rules.json").Available }).Should(Equal(pipeline.Digest("four")))
			w.EventuallyQuiet(ctx)
		}
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("rules.json", "two"))
		Expect(cm.Events(ctx, "UpdateAvailable")).To(HaveLen(1))
		pins("four", "accept", "rules.json")
		page.Says("five")
		curlctl("unpin", "rules.json", "--now")
		cm.EventuallyHasData(ctx, "rules.json", "five")
	})
})
