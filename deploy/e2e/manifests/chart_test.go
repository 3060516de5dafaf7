package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

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

	// A Job that no node takes would keep everything else from starting.
	It("puts every pod on the nodes of nodeSelector and tolerations", func(ctx SpecContext) {
		pods := podTemplates(everything(ctx, "--set-json", `nodeSelector={"pool":"infra"}`,
			"--set-json", `tolerations=[{"key":"infra"}]`))
		Expect(len(pods)).To(BeNumerically(">=", 10))
		for of, pod := range pods {
			Expect(pod.Spec.NodeSelector).To(HaveKeyWithValue("pool", "infra"), of)
			Expect(pod.Spec.Tolerations).To(ContainElement(corev1.Toleration{Key: "infra"}), of)
		}
	})

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
		Entry("a registry that ends with a slash", `image.registry="example.com/"`,
			`/image/registry.*does not match pattern`),
		Entry("an invalid address range", `fetcher.egress.allowCIDRs=["10.0.0.0"]`,
			`/fetcher/egress/allowCIDRs/0.*does not match pattern`),
		Entry("credentials of an unknown kind", `nats.credentials.kind="password"`,
			`/nats/credentials/kind.*must be one of 'creds', 'nkey', 'none'`),
		Entry("no API server address, without a cluster to look it up", `networkPolicy.apiServer.cidrs=[]`,
			`networkPolicy.apiServer.cidrs: .* set its addresses`),
	)
})
