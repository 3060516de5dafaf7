package watchers_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// numberedSources returns n sources in YAML.
func numberedSources(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "{key: k%d, url: a.example.com}, ", i)
	}
	return "sources: [" + text.String() + "]"
}

// refused has pairs of a spec that the schema rejects and the message.
var refused = []string{
	`suspend: true`, "a Watcher needs at least one of configData, configBinaryData, sources and container",
	`configData: {a: b}, configBinaryData: {a: YQ==}`,
	"a key is in both configData and configBinaryData; remove it from one of them",
	`configData: {a: b}, sources: [{key: a, url: x.example.com}]`,
	"a key is in both sources and configData; remove it from one of them",
	`configBinaryData: {a: YQ==}, sources: [{key: a, url: x.example.com}]`,
	"a key is in both sources and configBinaryData; remove it from one of them",
	`sources: [{key: a, url: x.example.com}, {key: a, url: y.example.com}]`,
	`spec.sources[1]: Duplicate value: {"key":"a"}`,
	`configData: {"..": b}`, "spec.configData: Invalid value: a key consists of 1 to 253 letters",
	`sources: [{key: "..", url: x.example.com}]`,
	"spec.sources[0].key: Invalid value: \"..\": a key consists of 1 to 253 letters",
	`configBinaryData: {a/b: YQ==}`, "spec.configBinaryData: Invalid value: a key consists of 1 to 253 letters",
	`configData: {` + strings.Repeat("k", 254) + `: x}`,
	"spec.configData: Invalid value: a key consists of 1 to 253 letters",
	`sources: [{key: ` + strings.Repeat("k", 254) + `, url: x.example.com}]`,
	"spec.sources[0].key: Too long: may not be ",
	`sources: [{key: a, url: "x.example.com b=y"}]`,
	"a url contains only printable ASCII and no white space; escape other characters, as in %20",
	`sources: [{key: a, url: "https://u:p@x.example.com"}]`, "a url must not contain a user name or a password",
	`sources: [{key: a, url: "u@x.example.com"}]`, "a url must not contain a user name or a password",
	`sources: [{key: a, url: "ftp://x.example.com"}]`, "the scheme of a url is http or https",
	`sources: [{key: a, url: "https://x.example.com/` + strings.Repeat("y", 2049-22) + `"}]`,
	"spec.sources[0].url: Too long: may not be ",
	`sources: [{key: a, url: "https://é.example.com"}]`, "only printable ASCII",
	`interval: 5s, configData: {a: b}`,
	`spec.interval: Invalid value: "5s": interval is a duration such as 10m or 1h30m, from 10s to 8760h`,
	`interval: -1m, configData: {a: b}`, `spec.interval: Invalid value: "-1m": interval is a duration`,
	`interval: 1d, configData: {a: b}`, `spec.interval: Invalid value: "1d": interval is a duration`,
	`sources: [{key: a, url: x.example.com, sha256: ` + strings.Repeat("0A", 32) + `}]`,
	"sha256 has 64 lower-case hexadecimal digits",
	`sources: [{key: a, url: x.example.com, sha256: abc}]`, "sha256 has 64 lower-case hexadecimal digits",
	numberedSources(129), "spec.sources: Too many: 129: must have at most 128 items",
	`container: {image: i}`, "spec.container.name: Required value",
	`container: {name: c}`, "a container needs an image",
	`container: {name: c, image: i}, imagePullSecrets: {}`, "imagePullSecrets needs the name of a Secret",
	`container: {name: c, image: i, restartPolicy: Never}`, "the restartPolicy of a sidecar is Always; leave it out",
	`container: {name: C_d, image: i}`, "the name of a container has at most 63 characters: a-z",
	`configData: {a: b}, volume: {name: v}`, "volume needs container",
	`configData: {a: b}, imagePullSecrets: {name: s}`, "imagePullSecrets needs container",
	`configBinaryData: {a: "no!"}`, `spec.configBinaryData.a in body must be of type byte: "no!"`,
	`configData: {a: b}, target: {name: A_b}`, "the name of a ConfigMap has a-z, 0-9",
	`configData: {a: b}, target: {deletionPolicy: Orphan}`,
	`Unsupported value: "Orphan": supported values: "Delete", "Retain"`,
}

// try creates a Watcher as a dry run, with the validation of kubectl apply.
func try(ctx context.Context, namespace, manifest string) error {
	return env.Cluster.Client.CoreV1().RESTClient().Post().
		AbsPath("/apis", watchv1.GroupVersion().String(), "namespaces", namespace, watchv1.Resource().Resource).
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).Do(ctx).Error()
}

var _ = Describe("The schema of Watchers", Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) { namespace = env.Cluster.Namespace(ctx) })

	try := func(ctx context.Context, name, spec string) error {
		return try(ctx, namespace,
			"{apiVersion: watch.x-kv8s.io/v1alpha1, kind: Watcher, metadata: {name: "+name+"}, spec: {"+spec+"}}")
	}

	DescribeTable("accepts", func(ctx SpecContext, spec string) {
		Expect(try(ctx, "w", spec)).To(Succeed())
	},
		Entry("static data", `configData: {LEVEL: warn, .a-b_c: ""}`),
		Entry("static binary data", `configBinaryData: {logo.png: iVBORw0KGgo=}`),
		Entry("a source", `sources: [{key: a, url: data.example.com}]`),
		Entry("a URL with all its parts", `sources: [{key: a, url: "HTTPS://data.example.com:8443/x://y?c=d=e@f"}]`),
		Entry("a digest", `sources: [{key: a, url: x.example.com, sha256: `+strings.Repeat("0a", 32)+`}]`),
		Entry("the maximum number of sources", numberedSources(128)),
		Entry("the longest key", `configData: {`+strings.Repeat("k", 253)+`: x}`),
		Entry("the longest URL", `sources: [{key: a, url: "https://x.example.com/`+strings.Repeat("y", 2048-22)+`"}]`),
		Entry("intervals", `interval: 1h30m0.5s, configData: {a: b}`),
		Entry("only a sidecar", `container: {name: c, image: i}`),
		Entry("every field of a sidecar",
			`container: {name: c, image: i, restartPolicy: Always, ports: [{containerPort: 1}]}, volume: {name: v, emptyDir: `+
				`{}}, imagePullSecrets: {name: s}`),
		Entry("fields of a later Kubernetes",
			`container: {name: c, image: i, fromTheFuture: {a: b}}, volume: {name: v, fromTheFuture: {a: b}}`),
	)

	It("rejects each invalid spec with one sentence, which kubectl apply prints", func(ctx SpecContext) {
		var bad []named
		for pair := range slices.Chunk(refused, 2) {
			bad = append(bad, named{fmt.Sprintf("bad-%d", len(bad)), pair[0]})
		}
		printed, err := kubectlIn(namespace).apply(ctx, bad...)
		Expect(err).To(HaveOccurred())
		lines := strings.Split(strings.TrimSpace(printed), "\n")
		older := !kubetest.HasMutatingPolicies(GinkgoTB(), env.Cluster.Config) // prints types instead of values
		for i, w := range bad {
			sentence := refused[2*i+1]
			if older {
				sentence = sentence[strings.LastIndex(sentence, ": ")+2:]
			}
			Expect(lines).To(ContainElement(And(ContainSubstring(`"`+w.name+`" is invalid: `),
				ContainSubstring(sentence))), w.spec)
		}
	})

	It("rejects unknown fields", func(ctx SpecContext) {
		Expect(try(ctx, "w", `configData: {a: b}, intervall: 5m`)).
			To(MatchError(ContainSubstring(`unknown field "spec.intervall"`)))
	})

	It("rejects names that are too long for the derived names", func(ctx SpecContext) {
		Expect(try(ctx, strings.Repeat("n", 247), `configData: {a: b}`)).
			To(MatchError(ContainSubstring("name the ConfigMap in spec.target.name")))
		Expect(try(ctx, strings.Repeat("n", 247), `configData: {a: b}, target: {name: t}`)).To(Succeed())
		Expect(try(ctx, strings.Repeat("n", 64), `container: {name: c}`)).
			To(MatchError(ContainSubstring("the name of a Watcher with a container has at most 63 characters")))
	})

	DescribeTable("accepts updates of target, but no", func(ctx SpecContext, name, before, after string) {
		watchers := watchers.In(namespace)
		suitetest.Must(kubetest.ApplyWatcher(ctx, watchers, name, "configData: {a: b}, target: {"+before+"}"))
		change := func(target string) error {
			return world.ErrorOf(watchers.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"target":{`+target+`}}}`),
				metav1.PatchOptions{}))
		}
		Expect(change(after)).To(MatchError(ContainSubstring("target.name cannot be changed, added or removed")))
		Expect(change(`"deletionPolicy":"Retain"`)).To(Succeed(), "the policy may be changed")
	},
		Entry("change of target.name", "changed", "name: a", `"name":"b"`),
		Entry("addition of target.name", "added", "", `"name":"b"`),
		Entry("removal of target.name", "removed", "name: a", `"name":null`),
	)
})

var _ = It("The samples of Watchers are accepted", func(ctx SpecContext) {
	namespace := env.Cluster.Namespace(ctx)
	manifests := strings.Split(string(suitetest.Must(os.ReadFile("../../samples/watchers.yaml"))), "\n---\n")
	Expect(manifests).To(And(HaveLen(3), HaveEach(HavePrefix("# "))))
	for _, manifest := range manifests {
		Expect(try(ctx, namespace, manifest)).To(Succeed(), manifest)
	}
})
