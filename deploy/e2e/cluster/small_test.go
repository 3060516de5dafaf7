package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// smallStart is the maximum time from the first pod of the small installation until all are ready.
const smallStart = 30 * time.Second

var _ = Describe("The small installation", Ordered, func() {
	var small *installation.Release
	BeforeAll(func(ctx SpecContext) {
		text := suitetest.Must(os.ReadFile(fromRoot("deploy/chart/values-small.yaml")))
		values := map[string]any{}
		Expect(yaml.Unmarshal(text, &values)).To(Succeed())
		values["image"] = map[string]any{"tag": version}
		values["annotations"] = map[string]any{"minRefresh": "2s"}
		fetcher, is := values["fetcher"].(map[string]any)
		Expect(is).To(BeTrue())
		maps.Copy(fetcher, map[string]any{"egress": map[string]any{"allowCIDRs": origin.CIDRs}})
		small = &installation.Release{
			Cluster: cluster, Name: "curl-me-that", Chart: chartPath(), Namespace: namespace(ctx, "curl-me-that-small-"),
			Values: values,
		}
		DeferCleanup(func(ctx SpecContext) { small.Uninstall(ctx) })
	})

	It("is ready within 30 s, with 4 pods that request at most 100m CPU and 192 MiB", func(ctx SpecContext) {
		// Other load may slow down one start, so up to three are measured.
		took := startup(ctx, small)
		for attempt := 1; took > smallStart && attempt < 3; attempt++ {
			small.Uninstall(ctx)
			took = startup(ctx, small)
		}
		AddReportEntry("time", fmt.Sprintf("all pods ready after %s", took))
		Expect(took).To(BeNumerically("<=", smallStart))

		var pods []corev1.Pod
		Eventually(ctx, func() []corev1.Pod {
			// The pods of finished Jobs stay for an hour, but use nothing.
			pods = slices.DeleteFunc(small.Pods(ctx, ""), func(pod corev1.Pod) bool {
				return pod.Status.Phase == corev1.PodSucceeded
			})
			return pods
		}).WithTimeout(3 * time.Minute).Should(HaveLen(4))
		cpu, memory := resource.Quantity{}, resource.Quantity{}
		for _, pod := range pods {
			for _, container := range pod.Spec.Containers {
				cpu.Add(*container.Resources.Requests.Cpu())
				memory.Add(*container.Resources.Requests.Memory())
			}
		}
		AddReportEntry("requests", fmt.Sprintf("%s CPU, %s", &cpu, &memory))
		Expect(cpu.Cmp(resource.MustParse("100m"))).To(BeNumerically("<=", 0), cpu.String())
		Expect(memory.Cmp(resource.MustParse("192Mi"))).To(BeNumerically("<=", 0), memory.String())
	})

	It("passes the suite of an installed release", runInstalledSuite)

	It("recreates the streams after the pod of NATS is replaced", func(ctx SpecContext) {
		small.Kill(ctx, small.Pods(ctx, installation.NATS)[0])
		small.EventuallyRuns(ctx, installation.NATS, 1)
		i := installation.Open(ctx)
		page := i.Origin.Page("/afterwards").Says("filled")
		i.Create(ctx, "afterwards", world.Asking("mydata="+page.URL())).
			Within(recovery).EventuallyHasData(ctx, "mydata", "filled")
	})

	Context("with credentials of teams and a proxy with a private address", Ordered, func() {
		var i *world.World
		BeforeAll(func(ctx SpecContext) {
			GinkgoT().Setenv("CURLMETHAT_E2E_ORIGIN", "https://"+installation.AnyHost)
			i = installation.Open(ctx)
			suitetest.Must(cluster.Client.CoreV1().ConfigMaps(small.Namespace).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "authority"}, Data: map[string]string{"ca.crt": string(origin.Authority)},
			}, metav1.CreateOptions{}))
			fetcher, is := small.Values["fetcher"].(map[string]any)
			Expect(is).To(BeTrue())
			fetcher["caBundle"] = map[string]any{"configMap": "authority"}
			fetcher["egress"] = map[string]any{"proxy": map[string]any{"url": origin.URL, "resolves": true, "to": originPeers()}}
			teams := map[string]any{i.Namespace: []string{}}
			small.Values["credentials"] = map[string]any{"namespaces": teams}
			small.Install(ctx)
			small.EventuallyRuns(ctx, installation.Fetcher, 1)
		})

		It("fetches from names that only its proxy resolves, but not from the proxy itself", func(ctx SpecContext) {
			page := i.Origin.Page("/public").Says("through the proxy")
			_, path, _ := strings.Cut(page.URL(), installation.AnyHost)
			cm := i.Create(ctx, "proxied", world.Asking(fmt.Sprintf("mydata=%s name=%s address=http://%s:8080%s", page.URL(),
				origin.URL+path, origin.Pod.Status.PodIP, path)))
			cm.EventuallyHasData(ctx, "mydata", "through the proxy")
			cm.EventuallyReports(ctx, "name", "AddressDenied")
			cm.EventuallyReports(ctx, "address", "AddressDenied")
			Expect(page.Hits()).To(Equal(1))
		})

		It("follows Secrets with credentials when they are created, changed and deleted", func(ctx SpecContext) {
			secrets := cluster.Client.CoreV1().Secrets(i.Namespace)
			changed := i.Origin.Page("/changed").Requires("Bearer first").Says("first")
			deleted := i.Origin.Page("/deleted").Requires("Basic bWU6cGFzcw==").Says("gone")
			cm := i.Create(ctx, "team", world.Asking("changed="+changed.URL()+" deleted="+deleted.URL()),
				world.Annotated("x-kv8s.io/curl-refresh", "2s"))
			eventuallySays := func(text string) {
				GinkgoHelper()
				Eventually(ctx, func() string { return fmt.Sprint(cm.Events(ctx, "BadStatus")) }).Should(ContainSubstring(text))
			}
			// eventuallyFetches changes the pods of the fetcher again and again, so that the kubelet updates their mounts
			// once it has the new Secret. Otherwise that takes up to 90 s.
			eventuallyFetches := func(text string) {
				GinkgoHelper()
				Eventually(ctx, func() string {
					for _, pod := range small.Pods(ctx, installation.Fetcher) {
						suitetest.Must(cluster.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
							fmt.Appendf(nil, `{"metadata":{"annotations":{"mounts":"%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{}))
					}
					return cm.Get(ctx).Data["changed"]
				}).WithPolling(2 * time.Second).Should(Equal(text))
			}
			eventuallySays("401; no credential is configured for this URL and namespace")

			since := time.Now()
			cluster.Credential(ctx, i.Namespace, "changed", changed.URL(), map[string]string{"bearerToken": "first"})
			cluster.Credential(ctx, i.Namespace, "deleted", deleted.URL(), map[string]string{
				"username": "me", "password": "pass", "ca.crt": string(origin.Authority),
			})
			compiled := func() (string, error) {
				s, err := cluster.Client.CoreV1().Secrets(small.Namespace).
					Get(ctx, small.Object("credentials"), metav1.GetOptions{})
				return string(s.Data["headers.json"]), err
			}
			Eventually(ctx, compiled).Should(And(ContainSubstring("Bearer first"), ContainSubstring("Secret deleted")))
			eventuallyFetches("first")
			AddReportEntry("time", fmt.Sprintf("from Secret to data: %s", time.Since(since).Round(time.Second)))
			cm.EventuallyHasData(ctx, "deleted", "gone")

			changed.Requires("Bearer second").Says("second")
			eventuallySays("401; the credential of Secret changed was sent")
			suitetest.Must(secrets.Patch(ctx, "changed", types.MergePatchType, []byte(`{"stringData":{"bearerToken":"second"}}`),
				metav1.PatchOptions{}))
			Expect(secrets.Delete(ctx, "deleted", metav1.DeleteOptions{})).To(Succeed())
			Eventually(ctx, compiled).Should(And(ContainSubstring("Bearer second"), Not(ContainSubstring("Secret deleted"))))
			eventuallyFetches("second")
			cm.EventuallyReports(ctx, "deleted", "BadStatus")
			cm.Unannotate(ctx, "x-kv8s.io/curl-refresh")
		})
	})
})

// startup installs a release and returns the time from its first pod until all its services were ready.
func startup(ctx context.Context, r *installation.Release) time.Duration {
	GinkgoHelper()
	r.Install(ctx)
	var first, last time.Time
	for _, component := range append([]string{installation.NATS}, world.Services()...) {
		r.EventuallyRuns(ctx, component, 1)
		for _, pod := range r.Pods(ctx, component) {
			if created := pod.CreationTimestamp.Time; first.IsZero() || created.Before(first) {
				first = created
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.LastTransitionTime.After(last) {
					last = condition.LastTransitionTime.Time
				}
			}
		}
	}
	return last.Sub(first)
}
