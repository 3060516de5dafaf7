package watchers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// kubectl runs the real kubectl in a namespace.
type kubectl struct{ path, namespace, folder string }

func kubectlIn(namespace string) kubectl {
	GinkgoHelper()
	return kubectl{world.Kubectl(), namespace, GinkgoT().TempDir()}
}

// run returns the output of kubectl.
func (k kubectl) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, k.path, append([]string{
		"--kubeconfig=" + env.Cluster.Kubeconfig, "--namespace=" + k.namespace, "--cache-dir=" + k.folder,
	}, args...)...).CombinedOutput()
	return string(out), err
}

// apply applies Watchers in one file.
func (k kubectl) apply(ctx context.Context, watchers ...named) (string, error) {
	GinkgoHelper()
	var text strings.Builder
	for _, w := range watchers {
		fmt.Fprintf(&text, "---\napiVersion: watch.x-kv8s.io/v1alpha1\nkind: Watcher\nmetadata: {name: %s}\nspec: {%s}\n",
			w.name, w.spec)
	}
	file := filepath.Join(k.folder, "watchers.yaml")
	Expect(os.WriteFile(file, []byte(text.String()), 0o600)).To(Succeed())
	return k.run(ctx, "apply", "-f", file)
}

var _ = Describe("kubectl", func() {
	It("applies a valid Watcher, waits for its condition, and lists it by its short name", func(ctx SpecContext) {
		s := open(ctx)
		k := kubectlIn(s.Namespace)
		page := s.Origin.Page("/errors").Says("errors")
		release := page.Hold()
		Expect(k.apply(ctx, named{"errors", `configData: {a: b}, sources: [{key: c, url: "` + page.URL() + `"}]`})).
			To(Equal("watcher.watch.x-kv8s.io/errors created\n"))
		Eventually(ctx, k.run).WithArguments("get", "wat", "errors", "--no-headers").WithPolling(8 * polling).
			Should(MatchRegexp(`^errors +Unknown +Unknown +0/1 +errors-config `))
		release()
		Expect(k.run(ctx, "wait", "--for=condition=Ready", "watcher/errors", "--timeout=25s")).
			To(Equal("watcher.watch.x-kv8s.io/errors condition met\n"))
		Expect(k.run(ctx, "get", "watchers", "-o", "wide")).To(MatchRegexp(
			`^NAME +READY +FRESH +FETCHED +CONFIGMAP +AGE +REASON +CHANGED +PODS *\nerrors +True +True +1/1 +errors-config ` +
				`+\S+ +Ready `))
	})
})

// named is the name of a Watcher and its spec in YAML.
type named struct{ name, spec string }

// Flux, Argo CD and others assess a resource only by these rules.
var _ = Describe("Generic tools", func() {
	health := func(ctx context.Context, w *watcher) string {
		GinkgoHelper()
		o := suitetest.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(w.get(ctx)))
		return suitetest.Must(status.Compute(&unstructured.Unstructured{Object: o})).Status.String()
	}

	It("see Watchers that are up to date, in progress and failed", func(ctx SpecContext) {
		s := open(ctx)
		page, held, bad := s.Origin.Page("/good").Says("good"), s.Origin.Page("/held").Says("held"), s.Origin.Page("/bad").
			Fails(404)
		release := held.Hold()
		s.Create(ctx, "theirs")
		s.Create(ctx, "fixed", world.Labelled(watchv1.WatcherLabel, "immutable"), world.Immutable())
		source := func(url string) string { return `sources: [{key: a, url: "` + url + `"}]` }
		good := s.applyReady(ctx, "good", source(page.URL()))
		for name, of := range map[string]struct{ spec, kind, condition, health string }{
			"pending":   {source(held.URL()), "Reconciling", "True/Progressing", "InProgress"},
			"failing":   {source(bad.URL()), "Reconciling", "True/FetchFailed", "InProgress"},
			"denied":    {source("http://10.0.0.1"), "Stalled", "True/AddressDenied", "Failed"},
			"exists":    {`configData: {a: b}, target: {name: theirs}`, "Stalled", "True/TargetExists", "Failed"},
			"owned":     {`configData: {a: b}, target: {name: good-config}`, "Stalled", "True/TargetOwned", "Failed"},
			"invalid":   {source("https://"), "Stalled", "True/InvalidSource", "Failed"},
			"immutable": {`configData: {a: b}, target: {name: fixed}`, "Stalled", "True/TargetImmutable", "Failed"},
			"large":     {`configData: {a: "` + strings.Repeat("x", 1100<<10) + `"}`, "Stalled", "True/TooLarge", "Failed"},
			"refused":   {`configData: {a: b}, target: {name: kube-root-ca.crt}`, "Stalled", "True/TargetRefused", "Failed"},
			"suspended": {`suspend: true, ` + source(page.URL()), "Ready", "Unknown/Suspended", "InProgress"},
			"static":    {`configData: {a: b}`, "Ready", "True/Ready", "Current"},
		} {
			w := s.apply(ctx, name, of.spec)
			w.eventually(ctx, of.kind, of.condition)
			Expect(health(ctx, w)).To(Equal(of.health), name)
		}
		Expect(health(ctx, good)).To(Equal("Current"))
		page.Fails(404)
		good.annotate(ctx, "x-kv8s.io/curl-now", "1")
		good.eventually(ctx, "Fresh", "False/BadStatus")
		Expect(health(ctx, good)).To(Equal("Current"), "the last good value stays")
		release()
	})
})
