package watchers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
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

// shell runs commands as a person types them.
func (k kubectl) shell(ctx context.Context, commands string) (string, error) {
	command := exec.CommandContext(ctx, "sh", "-euc", commands)
	command.Env = append(os.Environ(), "KUBECONFIG="+env.Cluster.Kubeconfig,
		"PATH="+filepath.Dir(k.path)+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	return string(out), err
}

// named is the name of a Watcher and its spec in YAML.
type named struct{ name, spec string }

// apply applies Watchers with one file.
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
		h := open(ctx)
		k := kubectlIn(h.Namespace)
		printed, err := k.apply(ctx, named{"errors", `interval: 5s, configData: {a: b}`})
		Expect(err).To(HaveOccurred())
		Expect(printed).To(ContainSubstring("The Watcher \"errors\" is invalid: spec.interval: Invalid value: \"5s\": " +
			"interval is a duration such as 10m or 1h30m, from 10s to 8760h\n"))

		page := h.Origin.Page("/errors").Says("errors")
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
		printed, err = k.apply(ctx, named{"errors", `configData: {a: b}, target: {name: other}`})
		Expect(err).To(HaveOccurred())
		Expect(printed).To(MatchRegexp(`The Watcher "errors" is invalid: .*target.name cannot be changed, added or removed`))
	})
})

// rollout matches the commands in the Watcher guide that put a digest into the pods of a
// Deployment.
var rollout = regexp.MustCompile("(?s)## Rollouts.*?```sh\n(.*?)```")

var _ = Describe("The content digest in a pod template", func() {
	It("replaces pods when fetched or static content changes, but not after an unchanged refresh", func(ctx SpecContext) {
		h := open(ctx)
		k := kubectlIn(h.Namespace)
		guide := suitetest.Must(os.ReadFile("../../docs/watcher.md"))
		commands := strings.ReplaceAll(string(rollout.FindSubmatch(guide)[1]), "team-a", h.Namespace)
		deployments := h.Cluster.Client.AppsV1().Deployments(h.Namespace)
		web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		suitetest.Must(deployments.Create(ctx,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
				Selector: &web, Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: web.MatchLabels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
				},
			}}, metav1.CreateOptions{}))
		// generation runs the commands and returns the generation of the Deployment.
		generation := func() int64 {
			GinkgoHelper()
			Expect(k.shell(ctx, commands)).To(ContainSubstring("deployment.apps/web patched"))
			now := suitetest.Must(deployments.Get(ctx, "web", metav1.GetOptions{}))
			return now.Generation
		}
		digest := func(w *watcher) func() string { return func() string { return w.get(ctx).Status.ContentSHA256 } }

		page := h.Origin.Page("/errors").Says("one")
		source := `, sources: [{key: c, url: "` + page.URL() + `"}]`
		w := h.apply(ctx, "errors", `configData: {a: b}`+source)
		w.eventuallyReady(ctx)
		first, of := generation(), digest(w)()
		w.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`)
		Eventually(ctx, page.Hits).Should(Equal(2))
		h.EventuallyQuiet(ctx)
		Expect(generation()).To(Equal(first), "the same body")

		page.Says("two")
		w.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"2"}}}`)
		Eventually(ctx, digest(w)).WithPolling(polling).ShouldNot(Equal(of))
		Expect(generation()).To(Equal(first + 1))
		of = digest(w)()
		w.apply(ctx, `configData: {a: c}`+source)
		Eventually(ctx, digest(w)).WithPolling(polling).ShouldNot(Equal(of))
		Expect(generation()).To(Equal(first + 2))
	})
})
