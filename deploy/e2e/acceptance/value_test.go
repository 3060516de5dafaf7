// Package acceptance runs the built services as processes against a real API server, and checks them against the
// promises to users, and what all screens show of a mistake and of credentials.
package acceptance_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/status"
)

func TestAcceptance(t *testing.T) { world.Run(t, "Acceptance") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

var _ = It("A fetched value arrives within 5 s, in one write that touches nothing else", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	w.Origin.Page("/").Says("hello there")
	const kept = "  kept\r\nas it is \t"
	cm := w.Create(ctx, "cool", world.Asking("my-cool-value=http://"+w.Origin.Address()),
		world.Holding("other", kept), world.Labelled("app", "cool"), world.Annotated("example.com/note", "ünïcode ✓"))
	cm.EventuallyHasDataWithin(ctx, 5*time.Second, "my-cool-value", "hello there")
	w.EventuallyQuiet(ctx)

	after := cm.Get(ctx)
	Expect(after.Data).To(Equal(map[string]string{"my-cool-value": "hello there", "other": kept}))
	Expect(after.Labels).To(Equal(map[string]string{"app": "cool"}))
	Expect(after.Annotations).To(And(HaveLen(3), HaveKeyWithValue("example.com/note", "ünïcode ✓"),
		HaveKey(annotation.DefaultKey), HaveKey(annotation.StatusKey)))
	Expect(cm.Writes(ctx)).To(Equal(1))
	Expect(w.Origin.Hits()).To(Equal(1))
	cm.HasEvents(ctx)
})

var _ = Describe("A refresh of a URL", func() {
	It("delivers a changed body, and writes nothing for an unchanged one", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		again := w.Origin.Page("/news").Tagged().NotModified
		page, cm := w.Fill(ctx, "news", "morning", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		Eventually(again).Should(BeNumerically(">=", 2))
		Expect(cm.Writes(ctx)).To(Equal(1))
		page.Says("evening")
		cm.EventuallyHasData(ctx, "mydata", "evening")
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.HasEvents(ctx)
	})
})

var _ = Describe("A failed fetch", func() {
	It("keeps the last good value and emits one Event when it starts and one when it ends", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "moody", "good", world.Annotated("x-kv8s.io/curl-refresh", "1s"))

		page.Fails(http.StatusNotFound)
		cm.EventuallyHasEvents(ctx, "BadStatus")
		failed := page.Hits()
		Eventually(page.Hits).Should(BeNumerically(">=", failed+2), "it keeps trying")
		cm.HasEvents(ctx, "BadStatus")
		event := cm.Events(ctx)[0]
		Expect(event.Type).To(Equal("Warning"))
		Expect(event.Note).To(And(ContainSubstring("localhost"), ContainSubstring("404")))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "good"))
		Expect(w.Stored(ctx, pipeline.Failures, "curl.failure.BadStatus.localhost.>")).To(BeNumerically(">=", 1))

		page.Says("good again")
		cm.EventuallyHasData(ctx, "mydata", "good again")
		cm.EventuallyHasEvents(ctx, "BadStatus", "Recovered")
		Expect(cm.Status(ctx, "mydata").Error).To(BeEmpty())
		Expect(cm.Writes(ctx)).To(BeElementOf(3, 4), "one more if it has lasted for three intervals, and is stale")
	})
})

var _ = It("An idle pipeline writes, publishes and fetches nothing", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	load := w.Begin(ctx, 40) // too few for the rate limit of the log, which would add a line
	load.EventuallyEnds(ctx, time.Minute)
	w.Create(ctx, "invalid", world.Asking("not correct")).EventuallyHasEvents(ctx, "InvalidAnnotation")
	w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+load.Pages[0].URL())).
		EventuallyHasEvents(ctx, "KeyExists")
	failing := w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/missing").URL()))
	failing.EventuallyHasEvents(ctx, "BadStatus")
	failing.EventuallyReports(ctx, "mydata", "BadStatus")
	w.EventuallyQuiet(ctx)
	before := w.Counters(ctx)
	Consistently(func() map[string]float64 { return w.Counters(ctx) }).
		WithTimeout(6 * time.Second).WithPolling(2 * time.Second).Should(Equal(before))
	Expect(w.Events(ctx)).To(HaveLen(3))
})

// aWhile is how long specs watch that something does not happen.
const aWhile = time.Second

var _ = Describe("An annotation", func() {
	It("that is invalid is reported within 5 s by one Event, and works once it is corrected", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/page").Says("there")
		cm := w.Create(ctx, "explained", world.Asking("page="+page.URL()))
		cm.EventuallyHasData(ctx, "page", "there")
		problem := func() *status.Problem { return cm.Problem(ctx) }
		Expect(problem()).To(BeNil())

		By("reporting the whole value, and keeping the data")
		cm.Ask(ctx, "not correct")
		const sentence = "annotation value 'not correct' does not match expected format key=url"
		cm.EventuallyHasEventsWithin(ctx, 5*time.Second, "InvalidAnnotation")
		event := cm.Events(ctx)[0]
		Expect([]string{event.Type, event.Note, event.ReportingController, string(event.Regarding.UID)}).
			To(Equal([]string{"Warning", sentence, kube.Controller, string(cm.Get(ctx).UID)}))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("page", "there"))
		Eventually(ctx, problem).Should(HaveValue(And(HaveField("Error", "InvalidAnnotation"), HaveField("Message", sentence),
			HaveField("Since", BeTemporally("~", time.Now(), time.Minute)))))
		Expect(cm.Get(ctx).Annotations[annotation.StatusKey]).
			To(HavePrefix(`{"*":{"error":"InvalidAnnotation","message":"` + sentence + `","since":"2`))
		first := problem()

		By("reporting an invalid pair and an unknown annotation, and fetching the rest")
		cm.Annotate(ctx, "x-kv8s.io/curl-refrsh", "10m")
		cm.Ask(ctx, "page=ftp://example.com/?token=S3CR3T other="+page.URL())
		cm.EventuallyHasData(ctx, "other", "there")
		Eventually(ctx, problem).Should(HaveValue(HaveField("Message",
			"annotation curl-me-that, pair 1 (key page): the scheme must be http or https; use http:// or https://; "+
				"also annotation x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?")))
		Eventually(ctx, problem).Should(HaveValue(HaveField("Since", first.Since)))
		Expect(cm.Get(ctx).Annotations[annotation.StatusKey]).NotTo(ContainSubstring("S3CR3T"))

		By("writing nothing while nothing changes")
		w.EventuallyQuiet(ctx)
		writes := cm.Writes(ctx)
		cm.Label(ctx, "app", "other")
		Expect(w.Watcher().Kill()).To(Succeed())
		w.Watcher().Restart(ctx)
		w.Watcher().EventuallyReady(ctx)
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(writes))

		By("clearing the error once it is corrected")
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			"x-kv8s.io/curl-refrsh": nil, annotation.DefaultKey: "page=" + page.URL() + " other=" + page.URL(),
		}}})
		Eventually(ctx, problem).Should(BeNil())
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(And(HaveKeyWithValue("page", "there"), HaveKeyWithValue("other", "there")))
		Expect(cm.Writes(ctx)).To(Equal(writes + 1))
	})
})

// request is a request of a tool that applies a manifest. A PUT has no type.
type request struct {
	kind types.PatchType
	body string
}

// send sends a request, as the tool does.
func (r request) send(ctx SpecContext, w *world.World, cm *world.ConfigMap) {
	GinkgoHelper()
	maps := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace)
	if r.kind == "" {
		manifest := cm.Get(ctx)
		manifest.ObjectMeta = metav1.ObjectMeta{Name: cm.Name, Annotations: map[string]string{
			annotation.DefaultKey: manifest.Annotations[annotation.DefaultKey],
		}}
		manifest.Data = nil
		w.History.BySpec(suitetest.Must(maps.Update(ctx, manifest, metav1.UpdateOptions{FieldManager: "tool"})))
		return
	}
	w.History.BySpec(suitetest.Must(maps.Patch(ctx, cm.Name, r.kind, []byte(r.body),
		metav1.PatchOptions{FieldManager: "tool"})))
}

const (
	applied   = types.StrategicMergePatchType // by kubectl apply, Helm 3 and Argo CD
	terraform = types.JSONPatchType
)

var _ = Describe("A tool that applies a manifest again and again", func() {
	It("removes a fetched value, which is fetched again, or keeps it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		for name, t := range map[string]struct {
			removes bool
			request
		}{
			"data-without-keys": {true, request{applied, `{"data":null}`}},
			"mydata-null":       {true, request{applied, `{"data":{"mydata":null}}`}},
			"put":               {true, request{}}, // kubectl replace, a forced Helm upgrade, Replace=true
			"terraform": {true, request{terraform, `[{"op":"remove","path":"/data/mydata"},` +
				`{"op":"remove","path":"/metadata/annotations/x-kv8s.io~1curl-status"}]`}},
			"data-left-out": {false, request{applied, `{"metadata":{"labels":{"version":"2"}}}`}},
			"data-left-out-by-server-side-apply": {false, request{
				types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"version":"2"}}}`,
			}},
			"terraform-and-ignore-changes": {false, request{terraform, `[{"op":"add","path":"/metadata/labels",` +
				`"value":{"version":"2"}}]`}},
		} {
			page, cm := w.Fill(ctx, name, "fetched")
			t.send(ctx, w, cm)
			if t.removes {
				cm.EventuallyHasEvents(ctx, "Drifted")
			}
			cm.EventuallyHasData(ctx, "mydata", "fetched")
			w.EventuallyQuiet(ctx)
			Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "fetched"}), name)
			if t.removes {
				Expect(page.Hits()).To(Equal(2), name)
			} else {
				Expect(page.Hits()).To(Equal(1), name)
				cm.HasEvents(ctx)
			}
		}
	})

	// deploy/docs/gitops.md promises this to those with another value in Git.
	It("conflicts by server-side apply with another value of a fetched key", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "applied", "fetched")
		Expect(world.ErrorOf(w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Patch(ctx, cm.Name, types.ApplyPatchType,
			[]byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"mydata":"from Git"}}`),
			metav1.PatchOptions{FieldManager: "tool"}))).To(MatchError(apierrors.IsConflict, "is a conflict"))
	})

	It("owns a key that is null in a server-side apply", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/null").Says("fetched")
		cm := w.Create(ctx, "null", func(o *corev1.ConfigMap) { o.Labels = map[string]string{"version": "1"} })
		request{types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"` +
			annotation.DefaultKey + `":"mydata=` + page.URL() + `"}},"data":{"mydata":null}}`}.send(ctx, w, cm)
		cm.EventuallyHasEvents(ctx, "KeyExists")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", ""))
		Expect(page.Hits()).To(BeZero())
	})
})

var _ = Describe("A hook", func() {
	It("has the new data written without waiting for a timer, with one GET for two replicas", func(ctx SpecContext) {
		const secret = "0123456789abcdef"
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "hook", "old")
		dir := GinkgoT().TempDir()
		for name, text := range map[string]string{
			"secret": secret,
			"hooks.yaml": "hooks:\n- {name: used, url: \"" + page.URL() + "\", kind: hmac, secretFile: secret}\n" +
				"- {name: none, url: \"https://none.example.com/\", kind: hmac, secretFile: secret}\n",
		} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("{}"))
		send := func(address, name string) int {
			r := suitetest.Must(http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/hooks/"+name,
				strings.NewReader("{}")))
			r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return 0
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		replicas := []string{env.FreeAddress(), env.FreeAddress()}
		for _, address := range replicas {
			run("curlctl", nil, "hooks", "--config="+filepath.Join(dir, "hooks.yaml"), "--hooks-listen="+address,
				"--nats-url="+w.Broker())
			Eventually(send).WithContext(ctx).WithArguments(address, "none").Should(Equal(http.StatusNoContent))
		}
		w.EventuallyQuiet(ctx)

		page.Says("new")
		began := time.Now()
		for _, address := range replicas {
			Expect(send(address, "used")).To(Equal(http.StatusAccepted))
		}
		cm.EventuallyHasData(ctx, "mydata", "new")
		AddReportEntry("from the hook to the data", time.Since(began).String())
		w.EventuallyQuiet(ctx)
		Expect(page.Hits()).To(BeNumerically("<=", 3), "one more if a window of 10 s ends in between")
	})
})

// run starts one of our programs and stops it at the end of the spec.
func run(name string, environment []string, args ...string) *process.Process {
	GinkgoHelper()
	p := suitetest.Must(process.Start(process.Program{Name: name, Path: env.Program(name), Args: args, Env: environment}))
	DeferCleanup(func() {
		if p.Running() {
			Expect(p.Kill()).To(Succeed())
		}
		if CurrentSpecReport().Failed() {
			AddReportEntry("log of "+name, ReportEntryVisibilityFailureOrVerbose, p.Log.String())
		}
	})
	return p
}

var _ = Describe("A service that starts before the API server", func() {
	It("waits for it, with few log lines", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: world.Services()})
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"clusters":[{"name":"c","cluster":{"server":"http://`+env.FreeAddress()+`"}}],
			"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600)).To(Succeed())
		for _, name := range []string{world.Watcher, world.Writer} {
			s := w.Launch(ctx, name, "--kubeconfig="+kubeconfig)
			Eventually(func() error { return s.Ready(ctx) }).Should(MatchError(ContainSubstring("not ready")))
			Consistently(s.Running).WithTimeout(aWhile).Should(BeTrue())
			Expect(s.Log.Count()).To(BeNumerically("<", 20))
			s.ShouldStop(ctx)
		}
		w.Unfinished()
	})
})

var _ = It("kubectl finds curlctl as a plugin and completes its arguments with live names", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	tools := GinkgoT().TempDir()
	for name, path := range map[string]string{
		"kubectl": world.Kubectl(), "kubectl-curl_me_that": w.Program("curlctl"),
		"kubectl_complete-curl_me_that": "../../curlctl/kubectl/kubectl_complete-curl_me_that",
	} {
		Expect(os.Symlink(suitetest.Must(filepath.Abs(path)), filepath.Join(tools, name))).To(Succeed())
	}
	w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL())).
		EventuallyHasEvents(ctx, "BadStatus")
	for command, said := range map[string]string{
		"curl-me-that status $NAMESPACE/failing":   "gave up",
		"curl-me-that --help":                      "kubectl curl-me-that [command]",
		"__complete curl-me-that failures show ''": "1\tBadStatus " + w.Namespace + "/failing",
	} {
		shell := exec.CommandContext(ctx, "sh", "-c", "kubectl "+command+" 2>/dev/null")
		shell.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "NAMESPACE="+w.Namespace,
			"KUBECONFIG="+w.Cluster.Kubeconfig, "CURLMETHAT_NATS_URL="+w.Broker())
		out, err := shell.Output()
		Expect(err).NotTo(HaveOccurred(), command)
		Expect(string(out)).To(ContainSubstring(said), command)
	}
})
