package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// acceptanceTimeout is the maximum duration of the installed suite.
const acceptanceTimeout = 10 * time.Minute

// chart and visitor are shared by the specs of the chart: the release, and a world of ConfigMaps around it.
var (
	chart   *installation.Release
	visitor *installation.Installation
)

var _ = Describe("The chart", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		chart = &installation.Release{
			Cluster: cluster, Name: "curl-me-that", Chart: chartPath(),
			Namespace: namespace(ctx, "curl-me-that-chart-"),
			Values: map[string]any{
				"image":       map[string]any{"tag": version},
				"annotations": map[string]any{"minRefresh": "2s"},
				"fetcher":     map[string]any{"concurrency": 4, "egress": map[string]any{"allowCIDRs": origin.CIDRs}},
			},
		}
		DeferCleanup(func(ctx SpecContext) { chart.Uninstall(ctx) })
		visitor = installation.Open(ctx)
		visitor.Create(ctx, "bystander", world.Holding("mydata", "not requested"))
	})
	AfterEach(func(ctx SpecContext) {
		if !CurrentSpecReport().Failed() {
			checkPromises(ctx)
		}
	})

	It("installs in a namespace with the restricted standard", func(ctx SpecContext) {
		chart.Install(ctx)
		for component, n := range map[string]int{
			installation.NATS: 1, installation.Watcher: 2, installation.Fetcher: 2, installation.Writer: 2,
		} {
			chart.EventuallyRuns(ctx, component, n)
		}
		privileged := corev1.Container{
			Name: "any", Image: registry + "origin:" + version, SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		}
		Expect(world.ErrorOf(cluster.Client.CoreV1().Pods(chart.Namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "privileged"}, Spec: corev1.PodSpec{Containers: []corev1.Container{privileged}},
		}, metav1.CreateOptions{}))).To(MatchError(apierrors.IsForbidden, "is forbidden"), "the standard is enforced")
	})

	permissionSpecs()

	It("passes the suite of an installed release", runInstalledSuite)

	It("passes its own tests", func(ctx SpecContext) { chart.Test(ctx) })

	upgradeSpecs()
	uninstallSpecs()
})

// runInstalledSuite runs the suite in deploy/e2e/installed.
func runInstalledSuite(ctx SpecContext) {
	GinkgoHelper()
	limited, cancel := context.WithTimeout(ctx, acceptanceTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, "go", "test", "-vet=off", "-count=1", "-v", "../installed", "--ginkgo.no-color")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Run()).To(Succeed(), "the suite in deploy/e2e/installed, whose report is above")
}

// checkPromises checks the history of all ConfigMaps, the logs and the pods so far.
func checkPromises(ctx context.Context) {
	GinkgoHelper()
	visitor.ShouldKeepPromises(ctx)
	for _, pod := range chart.Pods(ctx, "") {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		text := chart.Log(ctx, pod)
		for _, word := range []string{"panic:", "fatal error:", "DATA RACE", "Violation", "forbidden"} {
			Expect(text).NotTo(ContainSubstring(word), "log of %s", pod.Name)
		}
		for _, status := range pod.Status.ContainerStatuses {
			if ended := status.LastTerminationState.Terminated; ended != nil {
				Expect(ended.Reason).NotTo(Equal("OOMKilled"), "%s", pod.Name)
			}
		}
	}
}

// load creates a load and does not wait for it.
func load(ctx context.Context, name string, n int) *installation.Load {
	GinkgoHelper()
	return visitor.Load(ctx, fmt.Sprintf("load-%s", name), n)
}

// permissionSpecs adds specs of permissions and metrics.
func permissionSpecs() {
	It("exposes metrics of every service", func(ctx SpecContext) {
		for _, component := range world.Services() {
			for _, pod := range chart.Pods(ctx, component) {
				Expect(chart.Metrics(ctx, pod)).To(ContainSubstring("\ncurlmethat_"+component+"_"), pod.Name)
			}
		}
	})
}

// deployTimeout is the time from images to data that install.md promises.
const deployTimeout = 5 * time.Minute

// These specs follow deploy/docs/install.md.
var _ = Describe("make deploy", func() {
	It("installs the chart, which fills a recipe, and make undeploy removes it",
		func(ctx SpecContext) {
			if exec.CommandContext(ctx, "docker", "image", "inspect", registry+"watcher:"+version).Run() != nil {
				Skip("there is no container engine with the images of version " + version)
			}
			if os.Getenv("IMAGE_LOAD") == "" {
				Skip("IMAGE_LOAD is not set, and no registry has images tagged by content")
			}
			variables := []string{"VERSION=" + version, "VALUES=" + deployValues()}
			shown = append(shown, manifestNamespace)
			DeferCleanup(func(ctx SpecContext) {
				run(ctx, "make", append([]string{"undeploy"}, variables...)...)
				run(ctx, "kubectl", "delete", "namespace", manifestNamespace)
			})
			since := time.Now()
			run(ctx, "make", append([]string{"deploy"}, variables...)...)
			i := installation.Open(ctx)
			object, body := rds(ctx, i)
			applied := &corev1.ConfigMap{}
			Expect(json.Unmarshal(run(ctx, "kubectl", "apply", "--namespace", i.Namespace, "--filename", object,
				"--output=json"),
				applied)).To(Succeed())
			i.History.BySpec(applied)
			run(ctx, "kubectl", "wait", "--namespace", i.Namespace, "configmap/rds-ca", `--for=jsonpath={.data.ca\.pem}=`+body,
				"--timeout=2m")
			took := time.Since(since)
			AddReportEntry("time", fmt.Sprintf("from make deploy to data: %s", took.Round(time.Second)))
			Expect(took).To(BeNumerically("<", deployTimeout))
		},
	)
})

// run runs a command at the root of the repository with the kubeconfig of the cluster, and returns its output.
func run(ctx context.Context, name string, args ...string) []byte {
	GinkgoHelper()
	limited, cancel := context.WithTimeout(ctx, deployTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Dir = fromRoot(".")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, GinkgoWriter), GinkgoWriter
	Expect(cmd.Run()).To(Succeed(), "%s %s", name, strings.Join(args, " "))
	return out.Bytes()
}

// deployValues writes a values file that lets fetchers reach the origin, which has a private address.
func deployValues() string {
	GinkgoHelper()
	values := suitetest.Must(json.Marshal(
		map[string]any{"fetcher": map[string]any{"egress": map[string]any{"allowCIDRs": origin.CIDRs}}}))
	file := filepath.Join(GinkgoT().TempDir(), "values.json")
	Expect(os.WriteFile(file, values, 0o600)).To(Succeed())
	return file
}

// rds writes the recipe of the RDS CA bundle with a URL of the origin. It returns the file and the body.
func rds(ctx context.Context, i *installation.Installation) (file, body string) {
	GinkgoHelper()
	object := decode(fromRoot("deploy/samples/recipes/01-rds-ca.yaml"))[0]
	_, address, found := strings.Cut(object.GetAnnotations()[annotation.DefaultKey], "=")
	Expect(found).To(BeTrue())
	bundle := suitetest.Must(url.Parse(address))
	body = "certificates"
	object.SetAnnotations(map[string]string{
		annotation.DefaultKey: "ca.pem=" + i.Page(bundle.Path).Says(ctx, body).URL(),
	})
	text := suitetest.Must(object.MarshalJSON())
	file = filepath.Join(GinkgoT().TempDir(), "rds-ca.json")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	return file, body
}

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
		page := i.Page("/afterwards").Says(ctx, "filled")
		i.Create(ctx, "afterwards", world.Asking("mydata="+page.URL())).
			EventuallyHasDataWithin(ctx, recovery, "mydata", "filled")
	})

	Context("with credentials of teams and a proxy with a private address", Ordered, func() {
		var i *installation.Installation
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
			page := i.Page("/public").Says(ctx, "through the proxy")
			_, path, _ := strings.Cut(page.URL(), installation.AnyHost)
			cm := i.Create(ctx, "proxied", world.Asking(fmt.Sprintf("mydata=%s name=%s address=http://%s:8080%s", page.URL(),
				origin.URL+path, origin.Pod.Status.PodIP, path)))
			cm.EventuallyHasData(ctx, "mydata", "through the proxy")
			cm.EventuallyReports(ctx, "name", "AddressDenied")
			cm.EventuallyReports(ctx, "address", "AddressDenied")
			Expect(page.Hits(ctx)).To(Equal(1))
		})

		It("follows Secrets with credentials when they are created, changed and deleted", func(ctx SpecContext) {
			secrets := cluster.Client.CoreV1().Secrets(i.Namespace)
			changed := i.Page("/changed").Requires("Bearer first").Says(ctx, "first")
			deleted := i.Page("/deleted").Requires("Basic bWU6cGFzcw==").Says(ctx, "gone")
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
			Eventually(ctx, compiled).Should(And(ContainSubstring("Bearer first"), ContainSubstring(`"deleted"`)))
			eventuallyFetches("first")
			AddReportEntry("time", fmt.Sprintf("from Secret to data: %s", time.Since(since).Round(time.Second)))
			cm.EventuallyHasData(ctx, "deleted", "gone")

			changed.Requires("Bearer second").Says(ctx, "second")
			eventuallySays("401; the credential of Secret changed was sent")
			suitetest.Must(secrets.Patch(ctx, "changed", types.MergePatchType, []byte(`{"stringData":{"bearerToken":"second"}}`),
				metav1.PatchOptions{}))
			Expect(secrets.Delete(ctx, "deleted", metav1.DeleteOptions{})).To(Succeed())
			Eventually(ctx, compiled).Should(And(ContainSubstring("Bearer second"), Not(ContainSubstring(`"deleted"`))))
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
