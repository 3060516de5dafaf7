// Package manifests checks the rendered chart against a real API server, the Pod Security Standards
// and the programs that it starts.
//
// It does not use kubeconform, which needs JSON schemas. The API server already has them: a dry run with field
// validation decodes strictly and validates more than any schema. Custom resources of KEDA and the Prometheus
// operator are checked in the same way, with their definitions in testdata/crds.yaml.
//
// It also compares the dashboard, the alerts and the runbooks with the metrics. Promtool fires each alert.
package manifests_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

func TestManifests(t *testing.T) { suitetest.Run(t, "Manifests") }

const (
	chart = "../../chart"
	// namespace is the release's namespace in the rendered chart.
	namespace = "curl-me-that"
)

var (
	cluster *apiServer
	// rendered has the rendered objects by the name of the values or the manifest.
	rendered map[string][]object
)

var _ = BeforeSuite(func(ctx SpecContext) {
	rendered = map[string][]object{}
	files := suitetest.Must(filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml")))
	Expect(files).To(HaveLen(5))
	for _, file := range files {
		rendered[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = template(ctx, file)
	}
	folder := suitetest.Must(manifest.Manifests(ctx, "dev"))
	for _, name := range []string{installed, small, watchers, sidecars} {
		text := suitetest.Must(os.ReadFile(filepath.Join(folder, name)))
		rendered[name] = parse(text)
	}
	if !kubetest.HasMutatingPolicies(GinkgoTB(), kubetest.Config(GinkgoTB())) {
		for name, objects := range rendered {
			rendered[name] = slices.DeleteFunc(objects, func(o object) bool {
				return strings.HasPrefix(o.GetKind(), "MutatingAdmissionPolicy")
			})
		}
	}
	cluster = connect(ctx)
})

// Manifests rendered from the chart, by file name.
const (
	installed = "install.yaml"
	small     = "install-small.yaml"
	watchers  = "watchers.yaml"
	sidecars  = "sidecars.yaml"
)

type object = *unstructured.Unstructured

// additional returns table entries for the manifests that are applied in addition to install.yaml.
func additional() []TableEntry {
	return []TableEntry{Entry(watchers, watchers), Entry(sidecars, sidecars)}
}

// values returns table entries for all ways to render the chart, and more.
func values(more ...TableEntry) []TableEntry {
	entries := []TableEntry{}
	for _, name := range []string{
		"default", "ha", "namespaced", "byo-nats", "keeper",
		installed, small,
	} {
		entries = append(entries, Entry(name, name))
	}
	return append(entries, more...)
}

// render renders the chart without looking up the API server. Later flags override earlier ones.
func render(ctx context.Context, flags ...string) ([]object, error) {
	return manifest.Render(ctx, manifest.Chart{
		Dir: chart, Release: namespace, Namespace: namespace,
		Flags: append([]string{"--set-json", `networkPolicy.apiServer.cidrs=["10.96.0.1/32"]`}, flags...),
	})
}

// template renders the chart with a values file.
func template(ctx context.Context, file string, flags ...string) []object {
	GinkgoHelper()
	return suitetest.Must(render(ctx, append([]string{"--values", file}, flags...)...))
}

func parse(text []byte) []object {
	GinkgoHelper()
	return suitetest.Must(controlplane.Decode(text))
}

// podTemplates returns the pod templates in objects, by the name of the object.
func podTemplates(objects []object) map[string]corev1.PodTemplateSpec {
	GinkgoHelper()
	pods := map[string]corev1.PodTemplateSpec{}
	for _, o := range objects {
		name := o.GetKind() + "/" + o.GetName()
		switch o.GetKind() {
		case "Deployment":
			pods[name] = convert[appsv1.Deployment](o).Spec.Template
		case "StatefulSet":
			pods[name] = convert[appsv1.StatefulSet](o).Spec.Template
		case "Job":
			pods[name] = convert[batchv1.Job](o).Spec.Template
		case "Pod":
			pod := convert[corev1.Pod](o)
			pods[name] = corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		case "DaemonSet", "ReplicaSet", "CronJob", "ReplicationController":
			Fail("the suite does not know the pods of a " + o.GetKind())
		}
	}
	return pods
}

func convert[T any](o object) T {
	GinkgoHelper()
	var typed T
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true)).To(Succeed())
	return typed
}

// eventually is how long to wait for the API server to know the custom resources.
const eventually = time.Minute

// apiServer is a real API server. said has the warnings of its responses.
type apiServer struct {
	*controlplane.Applier
	said *gbytes.Buffer
}

// connect uses the cluster of KUBECONFIG. It creates the namespaces and custom resource definitions for the
// rendered objects, and waits until the API server knows all their kinds.
func connect(ctx context.Context) *apiServer {
	GinkgoHelper()
	path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	Expect(path).NotTo(BeEmpty(), "set KUBECONFIG, or run `make test-manifests`")
	config := suitetest.Must(clientcmd.BuildConfigFromFlags("", path))
	config.QPS = -1
	s := &apiServer{said: gbytes.NewBuffer()}
	config.WarningHandler = rest.NewWarningWriter(s.said, rest.WarningWriterOptions{})
	s.Applier = suitetest.Must(controlplane.NewApplier(config, "manifests"))
	for _, name := range []string{namespace, "team-a", "team-b"} {
		Expect(s.Apply(ctx, "", made("Namespace", "", name))).To(Succeed())
	}
	// In a complete cluster, a controller creates this account, which pods need.
	Expect(s.Apply(ctx, "", made("ServiceAccount", namespace, "default"))).To(Succeed())
	Expect(s.Apply(ctx, "", definitions()...)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		s.Applier = suitetest.Must(controlplane.NewApplier(config, "manifests"))
		for _, o := range slices.Concat(slices.Collect(maps.Values(rendered))...) {
			g.Expect(s.Resource("", o)).Error().NotTo(HaveOccurred())
		}
	}).WithTimeout(eventually).Should(Succeed())
	return s
}

// made returns an object of the core API that only has a name.
func made(kind, namespace, name string) object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// dryRun creates an object as a dry run and returns the API server's error or warnings.
func (s *apiServer) dryRun(ctx context.Context, o object) (warnings string, err error) {
	Expect(s.said.Clear()).To(Succeed())
	err = s.apply(ctx, o, metav1.DryRunAll)
	return string(s.said.Contents()), err
}

// apply works like `kubectl apply --server-side --validate=strict`.
func (s *apiServer) apply(ctx context.Context, o object, dryRun ...string) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	resource, err := s.Resource("", o)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: "manifests", Force: new(true), DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}

// definitions returns the custom resource definitions that the chart may render.
func definitions() []object {
	GinkgoHelper()
	return parse(suitetest.Must(os.ReadFile("testdata/crds.yaml")))
}

var _ = Describe("The rendered chart", func() {
	DescribeTable("is accepted by the API server without a warning", func(ctx SpecContext, name string) {
		for _, o := range rendered[name] {
			warnings, err := cluster.dryRun(ctx, o)
			Expect(err).NotTo(HaveOccurred(), "%s %s", o.GetKind(), o.GetName())
			Expect(warnings).To(BeEmpty(), "%s %s", o.GetKind(), o.GetName())
		}
	}, values(additional()...))

	DescribeTable("meets the restricted Pod Security Standard", func(name string) {
		evaluator := suitetest.Must(policy.NewEvaluator(policy.DefaultChecks(), nil))
		pods := podTemplates(rendered[name])
		Expect(len(pods)).To(BeNumerically(">=", 4))
		restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
		for of, pod := range pods {
			verdict := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
			Expect(verdict.Allowed).To(BeTrue(), "%s: %s", of, verdict.ForbiddenDetail())
		}
	}, values())

	DescribeTable("contains no secret", func(name string) {
		for _, o := range rendered[name] {
			Expect(o.GetKind()).NotTo(Equal("Secret"), "%s", o.GetName())
			text := suitetest.Must(o.MarshalJSON())
			Expect(string(text)).NotTo(MatchRegexp(`-----BEGIN|\bS[UAONC][A-Z2-7]{56}\b`), "%s %s", o.GetKind(), o.GetName())
		}
	}, values(additional()...))

	It("lists all its images in its metadata", func() {
		var images []string
		for _, name := range []string{installed, watchers, sidecars} {
			for _, pod := range podTemplates(rendered[name]) {
				for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
					images = append(images, c.Image)
				}
			}
		}
		slices.Sort(images)
		var listed []string
		metadata := string(suitetest.Must(os.ReadFile(filepath.Join(chart, "Chart.yaml"))))
		for _, image := range regexp.MustCompile(`(?m)image: (\S+)$`).FindAllStringSubmatch(metadata, -1) {
			listed = append(listed, image[1])
		}
		Expect(slices.Compact(images)).To(ConsistOf(listed))
	})

	It("has each known annotation in the policy that warns of misspelled names", func() {
		for _, o := range rendered["default"] {
			if o.GetKind() != "ValidatingAdmissionPolicy" || !strings.HasSuffix(o.GetName(), "-annotations") {
				continue
			}
			text := suitetest.Must(o.MarshalJSON())
			for _, name := range annotation.OptionNames() {
				Expect(string(text)).To(ContainSubstring("'x-kv8s.io/"+name+"'"),
					"deploy/chart/templates/admission-annotations.yaml")
			}
			return
		}
		Fail("the policy does not exist")
	})
})

var _ = Describe("Values of the chart", func() {
	DescribeTable("are rejected with a message about the field and the reason:", func(ctx SpecContext, set, said string) {
		Expect(world.ErrorOf(render(ctx, "--set-json", set))).
			To(MatchError(And(MatchRegexp(said), Not(ContainSubstring("nil pointer")))))
	},
		Entry("a number instead of a string", `watcher.replicas="two"`, `/watcher/replicas.*got string, want integer`),
		Entry("an unknown key", `fetcher.replica=3`, `/fetcher.*'replica' not allowed`),
		Entry("an even number of NATS servers", `nats.bundled.replicas=2`, `/nats/bundled/replicas.*must be one of 1, 3`),
		Entry("a concurrency of zero", `fetcher.concurrency=0`, `/fetcher/concurrency.*minimum: got 0, want 1`),
		Entry("an invalid address range", `fetcher.egress.allowCIDRs=["10.0.0.0"]`,
			`/fetcher/egress/allowCIDRs/0.*does not match pattern`),
		Entry("credentials of an unknown kind", `nats.credentials.kind="password"`,
			`/nats/credentials/kind.*must be one of 'creds', 'nkey', 'none'`),
		Entry("no API server address, without a cluster to look it up", `networkPolicy.apiServer.cidrs=[]`,
			`networkPolicy.apiServer.cidrs: .* set its addresses`),
	)
})

// composed is a service in docker-compose.yaml.
type composed struct {
	Command     []string `json:"command"`
	NetworkMode string   `json:"network_mode"`
	Ports       []string `json:"ports"`
	// Volumes are strings, or objects for files of the host.
	Volumes []any `json:"volumes"`
}

var _ = It("docker-compose.yaml allows only the API server to reach etcd, which has no authentication", func() {
	text := suitetest.Must(os.ReadFile("../../../docker-compose.yaml"))
	var file struct {
		Services map[string]composed `json:"services"`
	}
	Expect(yaml.Unmarshal(text, &file)).To(Succeed())
	etcd := file.Services["etcd"]
	Expect(etcd.NetworkMode).To(Equal("none"))
	Expect(etcd.Ports).To(BeEmpty())
	Expect(etcd.Command).To(ContainElement("--listen-client-urls=unix:///data/etcd/socket"))
	var mounting []string
	for name, service := range file.Services {
		if strings.Contains(fmt.Sprintf("%q", service.Volumes), `"etcd:`) {
			mounting = append(mounting, name)
		}
	}
	// The service certificates exits before etcd starts.
	Expect(mounting).To(ConsistOf("certificates", "etcd", "kube-apiserver"))
})

var _ = It("make manifests writes manifests with images from another registry", func(ctx SpecContext) {
	dist := GinkgoT().TempDir()
	cmd := exec.CommandContext(ctx, "../../tools/install", "manifests")
	cmd.Env = append(os.Environ(), "REGISTRY=registry.example.com/me", "VERSION=1", "DIST="+dist)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Run()).To(Succeed())
	for _, name := range []string{installed, small, watchers, sidecars} {
		text := suitetest.Must(os.ReadFile(filepath.Join(dist, name)))
		images := regexp.MustCompile(`(?m)image: (\S+)$`).FindAllStringSubmatch(string(text), -1)
		Expect(images).NotTo(BeEmpty())
		for _, image := range images {
			Expect(image[1]).To(MatchRegexp(`^(registry\.example\.com/me/[a-z]+:1|nats:[\d.]+)$`), name)
		}
	}
})
