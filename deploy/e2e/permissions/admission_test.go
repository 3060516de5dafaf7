package permissions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
	"github.com/kv8s/curl-me-that/proto/status"
)

// digest is the digest of an arbitrary body.
var digest = strings.Repeat("ab", 32)

// reporting returns a status with written keys, and the key exists, which another owner had before.
func reporting(keys ...string) string {
	s := status.Status{Keys: map[string]status.Entry{"exists": {Error: "KeyExists"}}}
	for _, key := range keys {
		s.Keys[key] = status.Entry{
			URL: `https://a.example.com/"theirs":{"url":"x","sha256":"` + digest + `"}?{}`, SHA256: digest, Size: 7,
			Fence: status.Fence{Epoch: 1, Seq: 7},
		}
	}
	return s.String()
}

// trait changes an object before it is created.
type trait func(*corev1.ConfigMap)

// asking returns a ConfigMap that requests mine and two, and exists, which another owner had before. The writer
// also wrote old and oldbin, which are no longer requested. All other keys have other owners.
func asking(traits ...trait) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "asking-",
			Labels:       map[string]string{"app": "x"},
			Finalizers:   []string{"example.com/held"},
			Annotations: map[string]string{
				annotation.DefaultKey: "mine=https://a.example.com/?theirs=1 \n\t two=b.example.com\n  exists=c.example.com ",
				annotation.LegacyKey:  "legacy=https://a.example.com",
				annotation.StatusKey:  reporting("mine", "old", "oldbin"),
				"example.com/other":   "other",
			},
		},
		Data:       map[string]string{"mine": "m", "old": "o", "exists": "e", "theirs": "t", "legacy": "l"},
		BinaryData: map[string][]byte{"bin": {0xff}, "oldbin": {0xfe}},
	}
	for _, t := range traits {
		t(cm)
	}
	return cm
}

func without(key string) trait {
	return func(cm *corev1.ConfigMap) { delete(cm.Annotations, key) }
}

func with(key, value string) trait {
	return func(cm *corev1.ConfigMap) { cm.Annotations[key] = value }
}

func requesting(pairs string) trait { return with(annotation.DefaultKey, pairs) }

func suspending(value string) trait { return with("x-kv8s.io/curl-suspend", value) }

// bare removes all annotations.
func bare(cm *corev1.ConfigMap) { cm.Annotations = nil }

// nothingElse leaves only the key old and the status.
func nothingElse(cm *corev1.ConfigMap) {
	cm.ObjectMeta = metav1.ObjectMeta{
		GenerateName: cm.GenerateName, Annotations: map[string]string{annotation.StatusKey: reporting("old")},
	}
	cm.Data, cm.BinaryData = map[string]string{"old": "o"}, nil
}

func ignoring(cm *corev1.ConfigMap) { cm.Labels[annotation.IgnoreLabel] = annotation.IgnoreValue }

func named(namespace, name string) trait {
	return func(cm *corev1.ConfigMap) { cm.Namespace, cm.Name, cm.GenerateName = namespace, name, "" }
}

// create creates an object until the end of the spec.
func create(ctx context.Context, namespace string, cm *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	if cm.Namespace != "" {
		namespace = cm.Namespace
	}
	api := env.Cluster.Client.CoreV1().ConfigMaps(namespace)
	created := suitetest.Must(api.Create(ctx, cm, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) {
		suitetest.Must(api.Patch(ctx, created.Name, apitypes.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{}))
		Expect(api.Delete(ctx, created.Name, metav1.DeleteOptions{})).To(Succeed())
	})
	return created
}

// current returns the current object.
func current(ctx context.Context, cm *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	return suitetest.Must(env.Cluster.Client.CoreV1().ConfigMaps(cm.Namespace).Get(ctx, cm.Name, metav1.GetOptions{}))
}

// patch patches an object as an account, with the same kind of patch as the writer.
func patch(ctx context.Context, as *world.Account, cm *corev1.ConfigMap, body string) error {
	return world.ErrorOf(as.Client.CoreV1().ConfigMaps(cm.Namespace).Patch(ctx, cm.Name, apitypes.StrategicMergePatchType,
		[]byte(body), metav1.PatchOptions{FieldManager: annotation.FieldManager}))
}

// dryRun makes the API server check an object without storing it.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// asks returns annotations that request a key, plus one annotation, which may replace the request.
func asks(name, value string) map[string]string {
	return map[string]string{annotation.DefaultKey: "a=x.example.com", name: value}
}

// try creates a ConfigMap as a dry run.
func try(ctx context.Context, api corev1client.ConfigMapInterface, annotations map[string]string) error {
	return world.ErrorOf(api.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-", Annotations: annotations},
	}, dryRun))
}

// rule returns the permission to use verbs on a resource.
func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// beForbidden matches a denial by a policy whose message contains text.
func beForbidden(text string) types.GomegaMatcher {
	return And(MatchError(apierrors.IsForbidden, "is forbidden"), MatchError(ContainSubstring(text)))
}

const (
	chart   = "../../chart"
	release = "curl-me-that"
)

// render returns the objects from some templates of the chart.
func render(ctx context.Context, namespace string, templates []string, set ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	return suitetest.Must(manifest.Render(ctx, manifest.Chart{
		Dir: chart, Release: release, Namespace: namespace, Templates: templates,
		Set: append(set, "networkPolicy.enabled=false"),
	}))
}

// within limits the bindings of policies to one namespace, because other suites use the API server too.
func within(namespace string, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			Expect(unstructured.SetNestedField(o.Object, namespace,
				"spec", "matchResources", "namespaceSelector", "matchLabels", corev1.LabelMetadataName)).To(Succeed())
		}
	}
	return objects
}

// install creates objects until the end of the spec.
func install(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	applier := suitetest.Must(controlplane.NewApplier(env.Cluster.Config, manifest.Manager))
	Expect(applier.Apply(ctx, "", objects...)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(manifest.Delete(ctx, applier, "", objects)).To(Succeed()) })
}

// writer creates the writer's service account with the permissions from the chart, and waits until the policy
// is in force.
func writer(ctx context.Context, namespace string) *world.Account {
	GinkgoHelper()
	objects := render(ctx, namespace, []string{"serviceaccounts.yaml", "rbac.yaml"})
	install(ctx, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !strings.HasSuffix(o.GetName(), "-writer") || o.GetKind() == "Role" || o.GetKind() == "RoleBinding"
	}))
	account := env.Cluster.ExistingAccount(ctx, namespace, release+"-writer")
	install(ctx, render(ctx, namespace, []string{"admission-writer.yaml"}))
	// The probe has its own namespace, because a world records all writes in its namespace.
	probe := create(ctx, env.Cluster.Namespace(ctx),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}})
	Eventually(ctx, func() error {
		return patch(ctx, account, probe, `{"data":{"probe":"x"}}`)
	}).Should(MatchError(ContainSubstring("the writer may not change ConfigMaps without the annotation")),
		"the policy is in force")
	return account
}

// numbered returns n pairs.
func numbered(n int) string {
	pairs := make([]string, n)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("key-%d=a.example.com/%d", i, i)
	}
	return strings.Join(pairs, "\n")
}

// spaced returns a name, followed by the value surrounded by each Unicode space.
func spaced(name, value string) []any {
	all := []any{name}
	for _, space := range "\t\n\v\f\r \u0085\u00a0\u1680" +
		"\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000" {
		all = append(all, string(space)+value+string(space))
	}
	return all
}

var _ = Describe("The annotation policy", Ordered, func() {
	var (
		api     corev1client.ConfigMapInterface
		grammar *annotation.Grammar
	)
	BeforeAll(func(ctx SpecContext) {
		grammar = suitetest.Must(annotation.New(annotation.Defaults()))
		namespace := env.Cluster.Namespace(ctx)
		install(ctx, within(namespace,
			render(ctx, namespace, []string{"admission-annotations.yaml"}, "admissionPolicies.annotations.action=Deny")))
		api = env.Cluster.Client.CoreV1().ConfigMaps(namespace)
		Eventually(ctx, func() error { return try(ctx, api, asks(annotation.DefaultKey, "not correct")) }).
			ShouldNot(Succeed(), "the policy is in force")
	})

	// problem returns the first problem that the watcher finds.
	problem := func(annotations map[string]string) string {
		request, err := grammar.Parse(annotations)
		first, _, _ := strings.Cut(request.Problem(err), "; also ")
		first, _, _ = strings.Cut(first, "; nothing is fetched")
		return first
	}

	DescribeTable("accepts annotations that the watcher accepts:", func(ctx SpecContext, name string, values ...string) {
		for _, value := range values {
			Expect(problem(asks(name, value))).To(BeEmpty(), value)
			Expect(try(ctx, api, asks(name, value))).To(Succeed(), value)
		}
	},
		Entry("a pair", annotation.DefaultKey, "mydata=data.example.com"),
		Entry("URLs", annotation.DefaultKey, "mydata=https://data.example.com:8443/a/b?c=d=e#f",
			"mydata=HTTP://data.example.com", "a=localhost", "a=localhost:8080/x://y", "a=http://[2001:db8::1]:80/",
			"a=http://[fe80::1%25eth0]/", "a=srv.a-b.example.com.",
			"a=https://b\u00fccher.example/\u00e4?\u00f6", "a=https:8080/x",
			`a=https://x.example.com/a%2Fb/{id}|"<^>\;b?q={a}%`),
		Entry("several pairs on separate lines", annotation.DefaultKey,
			"\n  a=x.example.com\n\tb=y.example.com/%20?q=a@b\n"),
		Entry("other white space", annotation.DefaultKey, "a=x.example.com\u00a0b=y.example.com\u2003c=z.example.com"),
		Entry("dots in a key", annotation.DefaultKey, ".a..b-C_d.txt=x.example.com"),
		Entry("a long key", annotation.DefaultKey, strings.Repeat("k", 253)+"=x.example.com"),
		Entry("a long URL", annotation.DefaultKey,
			"a=https://x.example.com/"+strings.Repeat("y", weburl.MaxBytes-len("https://x.example.com/"))),
		Entry("the maximum number of pairs", annotation.DefaultKey, numbered(annotation.MaxPairs)),
		Entry("intervals", "x-kv8s.io/curl-refresh", "10m", "1h30m", "2d", "1d12h", "0.5d", ".5h", "+10s", "0", "-0", "",
			" 10m ", "100ms", "1.5h2us"),
		Entry("intervals of keys", "x-kv8s.io/curl-refresh", "10m a=1m", "a=1m", "a=0 1d"),
		Entry("rules", "x-kv8s.io/curl-expect", "a=size(json.rules) > 0\n\n  a = body == 'x=y'  \n", "\n", "\u00a0a=true"),
		Entry("an interval between any white space", spaced("x-kv8s.io/curl-refresh", "10m")...),
		Entry("suspension", "x-kv8s.io/curl-suspend", "true", "False", "1", "0", "T", " f ", ""),
		Entry("suspension between any white space", spaced("x-kv8s.io/curl-suspend", "true")...),
		Entry("a time to fetch", "x-kv8s.io/curl-now", "anything, at all?"),
		Entry("the status", "x-kv8s.io/curl-status", "{"),
		Entry("a digest", "x-kv8s.io/curl-sha256", "a="+digest),
		Entry("annotations of other tools", "example.com/curl-refrsh", "1h"),
	)

	DescribeTable("rejects pairs that the watcher rejects, with the same message:", func(
		ctx SpecContext, values ...string,
	) {
		for _, value := range values {
			said := problem(asks(annotation.DefaultKey, value))
			Expect(said).NotTo(BeEmpty(), value)
			if strings.Contains(said, "format key=url") && strings.ContainsAny(value, "?#@\n") {
				said = "annotation value '…' does not match expected format key=url"
			}
			Expect(try(ctx, api, asks(annotation.DefaultKey, value))).To(And(MatchError(apierrors.IsInvalid, "is invalid"),
				MatchError(And(ContainSubstring(said), Not(ContainSubstring("secret"))))), value)
		}
	},
		Entry("no pair", "not correct", "", "  ", "=https://a.example.com", "mydata="),
		Entry("an illegal key", "my/data=a.example.com", "..=a.example.com", "..a=a.example.com", ".=a.example.com",
			strings.Repeat("k", 254)+"=x.example.com"),
		Entry("a duplicate key", "a=x.example.com a=y.example.com"),
		Entry("an unsupported scheme", "a=ftp://x.example.com"),
		Entry("no host", "a=https://", "a=https://?secret"),
		Entry("no port after a colon", "a=x.example.com:", "a=x.example.com:http"),
		Entry("a password", "a=https://user:secret@x.example.com"),
		Entry("characters that nobody sees", "a=https://x.exa\u200bmple.com", "a=x.example.com/\u2060",
			"\ufeffa=x.example.com"),
		Entry("quotes", `a="https://x.example.com"`, `a='x.example.com/'`, `"a=x.example.com"`, "a=<https://x.example.com>"),
		Entry("a mistyped scheme", "a=https:/x.example.com", "a=https//x.example.com", "a=https:x.example.com",
			"a=https://http://x.example.com", `a=https:\\x.example.com`, "a=https;//x.example.com"),
		Entry("a lone percent sign", "a=x.example.com/100%", "a=x.example.com/%zz/"),
		Entry("an odd host", "a=x_1.example.com", "a={{.url}}", "a=$(URL)", "a=b=c", "a=https://x.example.com\\y/"),
		Entry("one invalid pair among many", numbered(100)+"\nwrong"),
		Entry("a long URL", "a=https://x.example.com/"+strings.Repeat("y", weburl.MaxBytes)),
		Entry("too many pairs", numbered(annotation.MaxPairs+1)),
		Entry("too many bytes", "a=x.example.com"+strings.Repeat(" ", annotation.MaxValueBytes)),
		Entry("separators", "a=https://x.example.com/; b=https://y.example.com/z", "a=x.example.com/; b=y.example.com",
			"a=https://x.example.com/a;b=https://y.example.com/z", "a=https://x.example.com;b=https://y.example.com/z",
			"a=https://x.example.com/, b=https://y.example.com/z", `a=https://x.example.com/a\nb=https://y.example.com`,
			"a=https://x.example.com/a,b=https://y.example.com/z", "a=https://x.example.com,b=https://y.example.com/z"),
		Entry("a secret outside a pair", "a=https://user:secret@x.example.com oops"),
		Entry("the second of three pairs", "a=x.example.com b=ftp://user:secret@x.example.com c=z.example.com"),
	)

	DescribeTable("rejects options that the watcher does not accept, with the same message:", func(
		ctx SpecContext, name, value string, words ...string,
	) {
		said := problem(asks(name, value))
		Expect(said).NotTo(BeEmpty())
		if len(words) > 0 {
			said = words[0]
		}
		Expect(try(ctx, api, asks(name, value))).To(MatchError(And(ContainSubstring(said), Not(ContainSubstring("S3CR3T")))))
	},
		Entry("a word as the interval", "x-kv8s.io/curl-refresh", "soon"),
		Entry("an interval without a unit", "x-kv8s.io/curl-refresh", "10"),
		Entry("a negative interval", "x-kv8s.io/curl-refresh", "-10m"),
		Entry("a zero-width space before an interval", "x-kv8s.io/curl-refresh", "\u200b10m",
			"annotation curl-refresh value '…' is not a duration such as 10m"),
		Entry("a zero-width space after a boolean", "x-kv8s.io/curl-suspend", "true\ufeff",
			"annotation curl-suspend value '…' is not true or false"),
		Entry("weeks", "x-k8s.io/curl-refresh", "1w"),
		Entry("a secret as the interval", "x-kv8s.io/curl-refresh", "https://u:S3CR3T@example.com",
			"annotation curl-refresh value '…' is not a duration such as 10m"),
		Entry("a word as the boolean", "x-kv8s.io/curl-suspend", "yes"),
		Entry("an unknown name", "x-kv8s.io/curl-header", "x"),
		Entry("a misspelled name", "x-kv8s.io/curl-refrsh", "10m",
			"annotation x-kv8s.io/curl-refrsh is unknown and has no effect; use one of curl-me-that, curl-refresh, curl-now, "+
				"curl-suspend, curl-sha256, curl-expect, curl-select, curl-allow-html"),
		Entry("a word as the permission of HTML", "x-kv8s.io/curl-allow-html", "html"),
		Entry("an interval for a key without a pair", "x-kv8s.io/curl-refresh", "10m other=1m",
			"annotation curl-refresh: key other is not requested; remove that part, or add the pair"),
		Entry("a selection for a key without a pair", "x-kv8s.io/curl-select", "a=body\n other = json.x",
			"annotation curl-select: key other is not requested; remove that part, or add the pair"),
		Entry("a rule for a key without a pair", "x-kv8s.io/curl-expect", "other=true",
			"annotation curl-expect: key other is not requested; remove that part, or add the pair"),
		Entry("a digest for a key without a pair", "x-kv8s.io/curl-sha256", "other="+digest,
			"annotation curl-sha256: key other is not requested; remove that part, or add the pair"),
		Entry("a line of curl-expect without a key", "x-kv8s.io/curl-expect", "a=size(body) > 0\nsize(body) > 0",
			"annotation curl-expect has a line that does not begin with key=; nothing is fetched until this is corrected"),
		Entry("an interval of a key without a unit", "x-kv8s.io/curl-refresh", "10m a=1"),
		Entry("a misspelled name under the other prefix", "x-k8s.io/curl-nwo", "10m",
			"annotation x-k8s.io/curl-nwo is unknown and has no effect; use one of"),
	)

	It("rejects a misspelled curl-me-that annotation and names it", func(ctx SpecContext) {
		Expect(try(ctx, api, map[string]string{"x-kv8s.io/curl-me-tha": "a=x.example.com"})).To(MatchError(
			ContainSubstring("annotation x-kv8s.io/curl-me-tha is unknown and has no effect; use one of curl-me-that")))
	})

	It("checks annotations only when they change", func(ctx SpecContext) {
		cm := suitetest.Must(api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "plain-"}},
			metav1.CreateOptions{}))
		change := func(body string) error {
			return world.ErrorOf(api.Patch(ctx, cm.Name, apitypes.MergePatchType, []byte(body), metav1.PatchOptions{}))
		}
		Expect(change(annotations(annotation.LegacyKey, "not correct"))).
			To(MatchError(apierrors.IsInvalid, "is invalid"), "with the other prefix")
		Expect(change(annotations(annotation.DefaultKey, "a=x.example.com", annotation.LegacyKey, "not correct"))).
			To(Succeed(), "only the first prefix counts")
		Expect(change(`{"data":{"a":"b"}}`)).To(Succeed(), "a change elsewhere")
		Expect(change(annotations("x-kv8s.io/curl-refresh", "soon"))).
			To(MatchError(ContainSubstring("is not a duration such as 10m")), "only an option")
		Expect(change(annotations(annotation.StatusKey, "{}"))).To(Succeed(), "the status")
	})
})

var _ = Describe("The annotation policy with the chart's default values", func() {
	It("accepts invalid annotations with the watcher's message as a warning", func(ctx SpecContext) {
		namespace := env.Cluster.Namespace(ctx)
		policy := within(namespace, render(ctx, namespace, []string{"admission-annotations.yaml"}))
		install(ctx, policy)
		config, heard := rest.CopyConfig(env.Cluster.Config), gbytes.NewBuffer()
		config.WarningHandler = rest.NewWarningWriter(heard, rest.WarningWriterOptions{})
		api := suitetest.Must(kubernetes.NewForConfig(config)).CoreV1().ConfigMaps(namespace)
		// Another suite may have installed the same policy under another name.
		ours := regexp.MustCompile(".*'" + policy[0].GetName() + "'.*")
		warnings := func(value string) []string {
			GinkgoHelper()
			Expect(heard.Clear()).To(Succeed())
			Expect(try(ctx, api, asks(annotation.DefaultKey, value))).To(Succeed())
			return ours.FindAllString(string(heard.Contents()), -1)
		}
		Eventually(ctx, warnings).WithArguments("not correct").
			Should(ContainElement(HaveSuffix("annotation value 'not correct' does not match expected format key=url")))
		Expect(warnings("page=ftp://example.com")).To(ConsistOf(
			HaveSuffix("annotation curl-me-that, pair 1 (key page): the scheme must be http or https; use http:// or " +
				"https://")))
		Expect(warnings("page=example.com")).To(BeEmpty())
	})
})

// annotations returns a patch of annotations, given as names and values. An empty value removes an annotation.
func annotations(pairs ...string) string {
	GinkgoHelper()
	values := map[string]any{}
	for pair := range slices.Chunk(pairs, 2) {
		values[pair[0]] = pair[1]
		if pair[1] == "" {
			values[pair[0]] = nil
		}
	}
	return string(suitetest.Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})))
}

// report returns a patch of the status with written keys.
func report(keys ...string) string { return annotations(annotation.StatusKey, reporting(keys...)) }

// spelling returns a patch of the status that spells a key of another owner differently.
func spelling(theirs string) string {
	return annotations(annotation.StatusKey, strings.Replace(reporting("theirs"), `"theirs":`, theirs, 1))
}

// both returns a patch that merges two patches.
func both(a, b string) string { return strings.TrimSuffix(a, "}") + "," + strings.TrimPrefix(b, "{") }

// Messages of the policy.
const (
	notAsked      = "the writer may not set a key that is not annotated"
	notWritten    = "the writer may not remove a key that is annotated or that it did not write"
	notReportable = "the writer may not report a key that is not annotated"
	noAnnotation  = "the writer may not change annotations other than x-kv8s.io/curl-status"
	noMetadata    = "the writer may not change labels, finalizers or owners"
	unannotated   = "the writer may not change ConfigMaps without the annotation"
	unowned       = "the writer may not empty managedFields"
	protected     = "the writer may not change protected ConfigMaps"
	suspended     = "the writer may not change the data of a suspended ConfigMap"
	ignored       = "the writer may not change the data of a ConfigMap with the label reconciler=ignore"
)

var _ = Describe("The service account of the writer", Ordered, func() {
	var (
		namespace string
		account   *world.Account
	)
	BeforeAll(func(ctx SpecContext) {
		namespace = env.Cluster.Namespace(ctx)
		account = writer(ctx, namespace)
	})

	DescribeTable("is allowed changes that the writer needs:", func(ctx SpecContext, body string, traits ...trait) {
		Expect(patch(ctx, account, create(ctx, namespace, asking(traits...)), body)).To(Succeed())
	},
		Entry("change nothing", `{}`),
		Entry("change a requested key", `{"data":{"mine":"new"}}`),
		Entry("add a requested key", `{"data":{"two":"new"}}`),
		Entry("add a requested binary key", `{"binaryData":{"two":"/w=="}}`),
		Entry("make a key binary", `{"data":{"mine":null},"binaryData":{"mine":"/w=="}}`),
		Entry("make a binary key text", `{"data":{"bin":"text"},"binaryData":{"bin":null}}`, requesting("bin=x.example.com")),
		Entry("report", report("mine", "two", "old", "oldbin")),
		Entry("report a key of another owner", report(), without(annotation.StatusKey)),
		Entry("set a key and report", both(report("mine", "two", "old", "oldbin"), `{"data":{"two":"new"}}`)),
		Entry("remove a key that it wrote and that is no longer requested", `{"data":{"old":null}}`),
		Entry("remove such a binary key", `{"binaryData":{"oldbin":null}}`),
		Entry("remove such a key and its report", both(report("mine", "oldbin"), `{"data":{"old":null}}`)),
		Entry("remove all keys that it wrote, and the status, when nothing is requested any more",
			both(annotations(annotation.StatusKey, ""), `{"data":{"old":null,"mine":null},"binaryData":{"oldbin":null}}`),
			without(annotation.DefaultKey), without(annotation.LegacyKey)),
		Entry("remove the last key of a ConfigMap that has nothing else",
			both(annotations(annotation.StatusKey, ""), `{"data":{"old":null}}`), nothingElse),
		Entry("follow the other spelling if only that is set", `{"data":{"legacy":"new"}}`, without(annotation.DefaultKey)),
		Entry("set keys separated by other white space", `{"data":{"a":"1","b":"2","c":"3","d":"4","e":"5"}}`,
			requesting("a=x\u00a0b=y\u2003c=z\vd=w\r\ne=v")),
		Entry("set a key of a ConfigMap that is no longer suspended", `{"data":{"mine":"new"}}`, suspending(" False ")),
		Entry("set a key if only the second spelling suspends", `{"data":{"mine":"new"}}`,
			suspending(""), with("x-k8s.io/curl-suspend", "true")),
		Entry("report on a suspended ConfigMap", report("mine", "two", "old", "oldbin"), suspending("true")),
		Entry("set a key whose pair breaks a rule", `{"data":{"mine":"new"}}`, requesting("mine=ftp://x.example.com")),
	)

	DescribeTable("is denied changes that the writer does not need:", func(
		ctx SpecContext, body, said string, traits ...trait,
	) {
		created := create(ctx, namespace, asking(traits...))
		Expect(patch(ctx, account, created, body)).To(beForbidden(said))
		Expect(current(ctx, created).ResourceVersion).To(Equal(created.ResourceVersion))
	},
		Entry("change another key", `{"data":{"theirs":"new"}}`, notAsked),
		Entry("add another key", `{"data":{"new":"new"}}`, notAsked),
		Entry("change another key along with its own", `{"data":{"mine":"new","theirs":"new"}}`, notAsked),
		Entry("change another binary key", `{"binaryData":{"bin":"/g=="}}`, notAsked),
		Entry("make another key binary", `{"data":{"theirs":null},"binaryData":{"theirs":"/w=="}}`, notAsked),
		Entry("change a key that only the second spelling names", `{"data":{"legacy":"new"}}`, notAsked),
		Entry("change a key that is named only in a URL", `{"data":{"theirs":"new"}}`, notAsked,
			requesting("mine=https://x.example.com/?old=1&theirs=2")),
		Entry("change a key without a URL", `{"data":{"theirs":"new"}}`, notAsked, requesting("theirs")),
		Entry("change a key that it wrote and that is no longer requested", `{"data":{"old":"new"}}`, notAsked),
		Entry("delete another key", `{"data":{"theirs":null}}`, notWritten),
		Entry("delete another binary key", `{"binaryData":{"bin":null}}`, notWritten),
		Entry("delete a requested key", `{"data":{"mine":null}}`, notWritten),
		Entry("delete a key that another owner had before", `{"data":{"exists":null}}`, notWritten,
			requesting("mine=a.example.com")),
		Entry("delete all keys", `{"data":{"$patch":"delete"}}`, notWritten),
		Entry("delete a key that is named only in a URL in the report", `{"data":{"theirs":null}}`, notWritten),
		Entry("report on another key", report("mine", "theirs"), notReportable),
		Entry("report on another key after a space", spelling(`"theirs" :`), notReportable),
		Entry("report on another key before a space", spelling("\"theirs\":\n "), notReportable),
		Entry("report on another key with a different spelling", spelling(`"\u0074heirs":`), notReportable),
		Entry("claim a key that another owner had before and that is no longer requested", report("mine", "exists"),
			notReportable, requesting("mine=a.example.com")),
		Entry("change annotation and key together",
			both(annotations(annotation.DefaultKey, "theirs=x.example.com"), `{"data":{"theirs":"new"}}`), noAnnotation),
		Entry("change the annotation", annotations(annotation.DefaultKey, "theirs=x.example.com"), noAnnotation),
		Entry("remove the annotation", annotations(annotation.DefaultKey, ""), noAnnotation),
		Entry("add an annotation", annotations("example.com/new", "new"), noAnnotation),
		Entry("change another annotation", annotations("example.com/other", "new"), noAnnotation),
		Entry("remove another annotation", annotations("example.com/other", ""), noAnnotation),
		Entry("change labels", `{"metadata":{"labels":{"app":"y"}}}`, noMetadata),
		Entry("add labels", `{"metadata":{"labels":{"new":"y"}}}`, noMetadata),
		Entry("remove labels", `{"metadata":{"labels":null}}`, noMetadata),
		Entry("add finalizers", `{"metadata":{"finalizers":["example.com/new"]}}`, noMetadata),
		Entry("remove finalizers", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/held"]}}`, noMetadata),
		Entry("add owners",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y"}]}}`, noMetadata),
		Entry("make it immutable", `{"immutable":true}`, "the writer may not change immutable"),
		Entry("set a key of a suspended ConfigMap", `{"data":{"mine":"new"}}`, suspended, suspending("true")),
		Entry("set a binary key of a suspended ConfigMap", `{"binaryData":{"two":"/w=="}}`, suspended, suspending(" 1\n")),
		Entry("remove a key of a suspended ConfigMap", `{"data":{"old":null}}`, suspended,
			with("x-k8s.io/curl-suspend", "T")),
		Entry("set a key if curl-suspend cannot be read", `{"data":{"mine":"new"}}`, suspended, suspending("perhaps")),
		Entry("set a key of an ignored ConfigMap", `{"data":{"mine":"new"}}`, ignored, ignoring),
		Entry("remove a key of an ignored ConfigMap", `{"data":{"old":null}}`, ignored, ignoring),
		Entry("set the key of a pair without a URL", `{"data":{"theirs":"new"}}`, notAsked,
			requesting("=https://x.example.com theirs")),
		Entry("set a key if the annotation is white space", `{"data":{"mine":"new"}}`, notAsked, requesting(" \n\t")),
		Entry("set a key without an annotation", `{"data":{"mine":"new"}}`, unannotated, bare),
		Entry("report without an annotation", report("mine"), unannotated, bare),
		Entry("write kube-root-ca.crt", `{"data":{"mine":"new"}}`, protected, named("", "kube-root-ca.crt")),
		Entry("write in a protected namespace", `{"data":{"mine":"new"}}`, protected, named("kube-public", "asking")),
	)

	It("may start managedFields with an apply, but no more than with a patch", func(ctx SpecContext) {
		cm := create(ctx, namespace, asking())
		apply := func(name, body string) error {
			return world.ErrorOf(account.Client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, apitypes.ApplyPatchType,
				fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},%s}`, name, body),
				metav1.PatchOptions{FieldManager: annotation.FieldManager, Force: new(true)}))
		}
		Expect(apply(cm.Name, `"data":{"two":"new"}`)).To(Succeed())
		Expect(apply(cm.Name, `"data":{"two":"new","theirs":"new"}`)).To(MatchError(ContainSubstring(notAsked)))
		Expect(apply("missing", `"data":{"two":"new"}`)).To(MatchError(apierrors.IsForbidden, "is forbidden"))
	})

	// The policy cannot protect single entries: taking over a key may remove the last field of another manager,
	// so a missing entry proves nothing.
	It("may rewrite managedFields, but not empty them or gain other keys that way", func(ctx SpecContext) {
		cm := create(ctx, namespace, asking())
		Expect(cm.ManagedFields).NotTo(BeEmpty())
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[{}]}}`)).To(MatchError(ContainSubstring(unowned)))
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[{}]},"data":{"mine":"new"}}`)).
			To(MatchError(ContainSubstring(unowned)))
		own := `{"manager":"` + annotation.FieldManager +
			`","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:mine":{}}}}`
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[`+own+`]}}`)).To(Succeed())
		now := current(ctx, cm)
		Expect(now.ManagedFields).To(HaveExactElements(HaveField("Manager", annotation.FieldManager)))
		Expect(now.Data).To(Equal(cm.Data))
		Expect(now.BinaryData).To(Equal(cm.BinaryData))
		Expect(patch(ctx, account, now, `{"metadata":{"managedFields":[`+own+`]},"data":{"theirs":"new"}}`)).
			To(MatchError(ContainSubstring(notAsked)))
	})

	It("is denied creates and deletes even if RBAC grants them", func(ctx SpecContext) {
		tooMuch := account.In(ctx, namespace, rule("", "configmaps", "delete", "create"))
		DeferCleanup(tooMuch.Revoke)
		cm := create(ctx, namespace, asking())
		const said = "the writer may not create or delete ConfigMaps"
		api := account.Client.CoreV1().ConfigMaps(namespace)
		Expect(api.Delete(ctx, cm.Name, metav1.DeleteOptions{})).To(MatchError(ContainSubstring(said)))
		Expect(world.ErrorOf(api.Create(ctx, asking(), metav1.CreateOptions{}))).To(MatchError(ContainSubstring(said)))
	})

	It("never exceeds the API server's cost limits for its policy", func(ctx SpecContext) {
		cm := large()
		Expect(patch(ctx, account, create(ctx, namespace, cm), `{"data":{"key-007":"new"}}`)).To(Succeed())
		all := map[string]string{}
		for key, value := range cm.Data {
			all[key] = strings.ToUpper(value)
		}
		body := suitetest.Must(json.Marshal(map[string]any{"data": all}))
		Expect(patch(ctx, account, create(ctx, namespace, large()), string(body))).To(Succeed())
		Expect(patch(ctx, account, create(ctx, namespace, large()), `{"data":{"theirs":"new"}}`)).
			To(MatchError(ContainSubstring(notAsked)))
	})
})

// large returns a ConfigMap with 100 keys, 1 MiB of values and annotations of the maximum size.
func large() *corev1.ConfigMap {
	var pairs []string
	var keys []string
	cm := asking()
	cm.Data, cm.BinaryData = map[string]string{}, nil
	for i := range 100 {
		key := fmt.Sprintf("key-%03d", i)
		keys = append(keys, key)
		pairs = append(pairs, key+"=https://a.example.com/"+strings.Repeat("x", 280))
		cm.Data[key] = strings.Repeat("v", 10<<10)
	}
	cm.Annotations[annotation.DefaultKey] = strings.Join(pairs, "\n")
	cm.Annotations[annotation.StatusKey] = reporting(keys...)
	room := 250<<10 - len(cm.Annotations[annotation.DefaultKey]) - len(cm.Annotations[annotation.StatusKey])
	cm.Annotations[corev1.LastAppliedConfigAnnotation] = strings.Repeat("l", room)
	return cm
}
