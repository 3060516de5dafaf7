package permissions_test

import (
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// numbered returns n pairs.
func numbered(n int) string {
	pairs := make([]string, n)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("key-%d=a.example.com/%d", i, i)
	}
	return strings.Join(pairs, "\n")
}

// digest is the digest of an arbitrary body.
var digest = strings.Repeat("ab", 32)

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
		first, _, _ := strings.Cut(request.ProblemText(err), "; also ")
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
		Entry("an unsupported scheme", "a=ftp://x.example.com", "a=file:/x", "a=data:text/plain,x",
			"a=about:blank", "a=javascript:", "a=data:u@x.example.com/secret"),
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
