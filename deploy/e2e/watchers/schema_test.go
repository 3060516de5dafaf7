package watchers_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/suitetest"
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

// refused has specs that the schema rejects, each with the message.
var refused = []struct{ what, spec, sentence string }{
	{
		"no content at all", `suspend: true`,
		"a Watcher needs at least one of configData, configBinaryData, sources and container",
	},
	{
		"a key in text and binary data", `configData: {a: b}, configBinaryData: {a: YQ==}`,
		"a key stands in configData and in configBinaryData; take it out of one",
	},
	{
		"a key in data and sources", `configData: {a: b}, sources: [{key: a, url: x.example.com}]`,
		"a key stands in sources and in configData; take it out of one",
	},
	{
		"a key in binary data and sources", `configBinaryData: {a: YQ==}, sources: [{key: a, url: x.example.com}]`,
		"a key stands in sources and in configBinaryData; take it out of one",
	},
	{
		"two sources of a key", `sources: [{key: a, url: x.example.com}, {key: a, url: y.example.com}]`,
		`spec.sources[1]: Duplicate value: {"key":"a"}`,
	},
	{"the parent as a key", `configData: {"..": b}`, "spec.configData: Invalid value: a key consists of 1 to 253 letters"},
	{
		"the parent as the key of a source", `sources: [{key: "..", url: x.example.com}]`,
		"spec.sources[0].key: Invalid value: \"..\": a key consists of 1 to 253 letters",
	},
	{
		"a path as a key", `configBinaryData: {a/b: YQ==}`,
		"spec.configBinaryData: Invalid value: a key consists of 1 to 253 letters",
	},
	{
		"a long key", `configData: {` + strings.Repeat("k", 254) + `: x}`,
		"spec.configData: Invalid value: a key consists of 1 to 253 letters",
	},
	{
		"a long key of a source", `sources: [{key: ` + strings.Repeat("k", 254) + `, url: x.example.com}]`,
		"spec.sources[0].key: Too long: may not be more than 253",
	},
	{
		"white space in a URL", `sources: [{key: a, url: "x.example.com b=y"}]`,
		"a url has no white space and only printable ASCII; escape the others, as in %20",
	},
	{
		"userinfo in a URL", `sources: [{key: a, url: "https://u:p@x.example.com"}]`,
		"a url carries no user name and no password",
	},
	{
		"userinfo without a scheme", `sources: [{key: a, url: "u@x.example.com"}]`,
		"a url carries no user name and no password",
	},
	{"another scheme", `sources: [{key: a, url: "ftp://x.example.com"}]`, "the scheme of a url is http or https"},
	{
		"a long URL", `sources: [{key: a, url: "https://x.example.com/` + strings.Repeat("y", 2049-22) + `"}]`,
		"spec.sources[0].url: Too long: may not be more than 2048",
	},
	{"no ASCII in a URL", `sources: [{key: a, url: "https://é.example.com"}]`, "only printable ASCII"},
	{
		"a short interval", `interval: 5s, configData: {a: b}`,
		`spec.interval: Invalid value: "5s": interval is a duration such as 10m or 1h30m, from 10s to 8760h`,
	},
	{
		"a negative interval", `interval: -1m, configData: {a: b}`,
		`spec.interval: Invalid value: "-1m": interval is a duration`,
	},
	{"days", `interval: 1d, configData: {a: b}`, `spec.interval: Invalid value: "1d": interval is a duration`},
	{
		"a digest in capitals", `sources: [{key: a, url: x.example.com, sha256: ` + strings.Repeat("0A", 32) + `}]`,
		"sha256 has 64 lower-case hexadecimal digits",
	},
	{
		"a short digest", `sources: [{key: a, url: x.example.com, sha256: abc}]`,
		"sha256 has 64 lower-case hexadecimal digits",
	},
	{"too many sources", numberedSources(129), "spec.sources: Too many: 129: must have at most 128 items"},
	{"a container without a name", `container: {image: i}`, "spec.container.name: Required value"},
	{"a container without an image", `container: {name: c}`, "a container needs an image"},
	{
		"a pull secret without a name", `container: {name: c, image: i}, imagePullSecrets: {}`,
		"imagePullSecrets needs the name of a Secret",
	},
	{
		"a container that ends", `container: {name: c, image: i, restartPolicy: Never}`,
		"the restartPolicy of a sidecar is Always; leave it out",
	},
	{"a container with a bad name", `container: {name: C_d, image: i}`, "the name of a container has at most 63 of a-z"},
	{"a volume without a container", `configData: {a: b}, volume: {name: v}`, "volume needs container"},
	{
		"a pull secret without a container", `configData: {a: b}, imagePullSecrets: {name: s}`,
		"imagePullSecrets needs container",
	},
	{"base64 that is none", `configBinaryData: {a: "no!"}`, `spec.configBinaryData.a in body must be of type byte: "no!"`},
	{"a bad name of the ConfigMap", `configData: {a: b}, target: {name: A_b}`, "the name of a ConfigMap has a-z, 0-9"},
	{
		"an unknown policy", `configData: {a: b}, target: {deletionPolicy: Orphan}`,
		`Unsupported value: "Orphan": supported values: "Delete", "Retain"`,
	},
}

var _ = Describe("The schema of Watchers", Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) { namespace = env.Cluster.Namespace(ctx) })

	// try applies a spec as a dry run, with the validation of kubectl apply.
	try := func(ctx context.Context, name, spec string) error {
		o := manifest("metadata: {name: " + name + "}\nspec: {" + spec + "}")
		_, err := api.Resource(watchv1.Resource()).Namespace(namespace).Create(ctx, o,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		return err
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
		for i, r := range refused {
			bad = append(bad, named{fmt.Sprintf("bad-%d", i), r.spec})
		}
		printed, err := kubectlIn(namespace).apply(ctx, bad...)
		Expect(err).To(HaveOccurred())
		lines := strings.Split(strings.TrimSpace(printed), "\n")
		for i, r := range refused {
			Expect(lines).To(ContainElement(And(ContainSubstring(`"`+bad[i].name+`" is invalid: `),
				ContainSubstring(r.sentence))), r.what)
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
		watchers := api.Resource(watchv1.Resource()).Namespace(namespace)
		suitetest.Must(watchers.Create(ctx,
			manifest("metadata: {name: "+name+"}\nspec: {configData: {a: b}, target: {"+before+"}}"), metav1.CreateOptions{}))
		_, err := watchers.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"target":{`+after+`}}}`),
			metav1.PatchOptions{})
		Expect(err).To(MatchError(ContainSubstring("target.name cannot be changed, added or removed")))
		_, err = watchers.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"target":{"deletionPolicy":"Retain"}}}`),
			metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred(), "the policy may be changed")
	},
		Entry("change of target.name", "changed", "name: a", `"name":"b"`),
		Entry("addition of target.name", "added", "", `"name":"b"`),
		Entry("removal of target.name", "removed", "name: a", `"name":null`),
	)
})
