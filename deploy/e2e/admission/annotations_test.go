package admission_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

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
	var api corev1client.ConfigMapInterface
	BeforeAll(func(ctx SpecContext) {
		namespace := env.Cluster.Namespace(ctx)
		install(ctx, within(namespace,
			render(ctx, namespace, []string{"admission-annotations.yaml"}, "admissionPolicies.annotations.action=Deny")))
		api = env.Cluster.Client.CoreV1().ConfigMaps(namespace)
		Eventually(ctx, func() error { return try(ctx, api, "not correct") }).ShouldNot(Succeed(), "the policy is in force")
	})

	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		panic(err) // cannot be: they are the defaults
	}

	DescribeTable("accepts annotations that the watcher accepts", func(ctx SpecContext, value string) {
		request := suitetest.Must(grammar.Parse(map[string]string{annotation.DefaultKey: value}))
		Expect(request.Refuses()).To(BeFalse())
		Expect(try(ctx, api, value)).To(Succeed())
	},
		Entry("a pair", "mydata=data.example.com"),
		Entry("a URL", "mydata=https://data.example.com:8443/a/b?c=d=e#f"),
		Entry("a scheme in capital letters", "mydata=HTTP://data.example.com"),
		Entry("several pairs on separate lines", "\n  a=x.example.com\n\tb=y.example.com/%20?q=a@b\n"),
		Entry("other white space", "a=x.example.com\u00a0b=y.example.com\u2003c=z.example.com"),
		Entry("a host with one label", "a=localhost"),
		Entry("a port", "a=localhost:8080/x://y"),
		Entry("an address", "a=http://[2001:db8::1]:80/"),
		Entry("an address with a zone", "a=http://[fe80::1%25eth0]/"),
		Entry("an underscore", "a=_srv.a-b.example.com."),
		Entry("dots in a key", ".a..b-C_d.txt=x.example.com"),
		Entry("a long key", strings.Repeat("k", 253)+"=x.example.com"),
		Entry("a long URL", "a=https://x.example.com/"+strings.Repeat("y", weburl.MaxBytes-len("https://x.example.com/"))),
		Entry("many", numbered(annotation.MaxPairs)),
	)

	DescribeTable("rejects annotations that the watcher rejects, with the same message", func(
		ctx SpecContext, value string,
	) {
		request, wrong := grammar.Parse(map[string]string{annotation.DefaultKey: value})
		err := try(ctx, api, value)
		Expect(err).To(MatchError(apierrors.IsInvalid, "is invalid"))
		Expect(err).NotTo(MatchError(ContainSubstring("secret")))
		var said string
		switch {
		case wrong == nil:
			Expect(request.Refuses()).To(BeTrue())
			said = request.Problems[0].Text
		case strings.Contains(wrong.Error(), "format key=url") && strings.ContainsAny(value, "?#@\n\u00e9"):
			said = "annotation value '…' does not match expected format key=url"
		default:
			said, _, _ = strings.Cut(wrong.Error(), "; nothing is fetched")
		}
		Expect(err).To(MatchError(ContainSubstring(said)))
	},
		Entry("two words", "not correct"),
		Entry("nothing", ""),
		Entry("white space", "  "),
		Entry("no key", "=https://a.example.com"),
		Entry("no URL", "mydata="),
		Entry("an illegal key", "my/data=a.example.com"),
		Entry("the parent directory", "..=a.example.com"),
		Entry("below the parent directory", "..a=a.example.com"),
		Entry("the directory", ".=a.example.com"),
		Entry("a duplicate key", "a=x.example.com a=y.example.com"),
		Entry("an unsupported scheme", "a=ftp://x.example.com"),
		Entry("a scheme without a host", "a=https://"),
		Entry("an empty port", "a=x.example.com:"),
		Entry("a word as the port", "a=x.example.com:http"),
		Entry("a password", "a=https://user:secret@x.example.com"),
		Entry("a query without a host", "a=https://?secret"),
		Entry("non-ASCII characters", "a=https://\u00e9.example.com"),
		Entry("one invalid pair among many", numbered(100)+"\nwrong"),
		Entry("a long URL", "a=https://x.example.com/"+strings.Repeat("y", weburl.MaxBytes)),
		Entry("too many pairs", numbered(annotation.MaxPairs+1)),
		Entry("too many bytes", "a=x.example.com"+strings.Repeat(" ", annotation.MaxValueBytes)),
		Entry("commas and spaces", "a=https://x.example.com/, b=https://y.example.com/z"),
		Entry("commas after paths", "a=https://x.example.com/a,b=https://y.example.com/z"),
		Entry("commas", "a=https://x.example.com,b=https://y.example.com/z"),
		Entry("a secret outside a pair", "a=https://user:secret@x.example.com oops"),
		Entry("a long key", strings.Repeat("k", 254)+"=x.example.com"),
		Entry("the second of three pairs", "a=x.example.com b=ftp://user:secret@x.example.com c=z.example.com"),
	)

	with := func(ctx SpecContext, name, value string) error {
		_, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "options-", Annotations: map[string]string{annotation.DefaultKey: "a=x.example.com", name: value},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}

	DescribeTable("accepts options that the watcher accepts", func(ctx SpecContext, name string, values ...string) {
		for _, value := range values {
			request, err := grammar.Parse(map[string]string{annotation.DefaultKey: "a=x.example.com", name: value})
			Expect(err).NotTo(HaveOccurred(), value)
			Expect(request.Problem(nil)).To(BeEmpty(), value)
			Expect(with(ctx, name, value)).To(Succeed(), value)
		}
	},
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

	DescribeTable("rejects options that the watcher does not accept, with the same message", func(
		ctx SpecContext, name, value, words string,
	) {
		request, err := grammar.Parse(map[string]string{annotation.DefaultKey: "a=x.example.com", name: value})
		Expect(request.Problem(err)).NotTo(BeEmpty())
		if words == "" {
			words, _, _ = strings.Cut(request.Problem(err), "; nothing is fetched")
		}
		Expect(with(ctx, name, value)).To(MatchError(And(ContainSubstring(words), Not(ContainSubstring("S3CR3T")))))
	},
		Entry("a word as the interval", "x-kv8s.io/curl-refresh", "soon", ""),
		Entry("an interval without a unit", "x-kv8s.io/curl-refresh", "10", ""),
		Entry("a negative interval", "x-kv8s.io/curl-refresh", "-10m", ""),
		Entry("a zero-width space before an interval", "x-kv8s.io/curl-refresh", "\u200b10m",
			"annotation curl-refresh value '…' is not a duration such as 10m"),
		Entry("a zero-width space after a boolean", "x-kv8s.io/curl-suspend", "true\ufeff",
			"annotation curl-suspend value '…' is not true or false"),
		Entry("weeks", "x-k8s.io/curl-refresh", "1w", ""),
		Entry("a secret as the interval", "x-kv8s.io/curl-refresh", "https://u:S3CR3T@example.com",
			"annotation curl-refresh value '…' is not a duration such as 10m"),
		Entry("a word as the boolean", "x-kv8s.io/curl-suspend", "yes", ""),
		Entry("an unknown name", "x-kv8s.io/curl-header", "x", ""),
		Entry("a misspelled name", "x-kv8s.io/curl-refrsh", "10m",
			"annotation x-kv8s.io/curl-refrsh is unknown and has no effect; use one of curl-me-that, curl-refresh, curl-now, "+
				"curl-suspend, curl-sha256, curl-expect, curl-select"),
		Entry("a line of curl-expect without a key", "x-kv8s.io/curl-expect", "a=size(body) > 0\nsize(body) > 0",
			"annotation curl-expect has a line that does not begin with key=; nothing is fetched until this is corrected"),
		Entry("an interval of a key without a unit", "x-kv8s.io/curl-refresh", "10m a=1", ""),
		Entry("a misspelled name under the other prefix", "x-k8s.io/curl-nwo", "10m",
			"annotation x-k8s.io/curl-nwo is unknown and has no effect; use one of"),
	)

	It("rejects a misspelled curl-me-that annotation and names it", func(ctx SpecContext) {
		_, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "slip-", Annotations: map[string]string{"x-kv8s.io/curl-me-tha": "a=x.example.com"},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).To(MatchError(
			ContainSubstring("annotation x-kv8s.io/curl-me-tha is unknown and has no effect; use one of curl-me-that")))
	})

	It("does not validate unchanged annotations", func(ctx SpecContext) {
		Expect(try(ctx, api, "a=x.example.com")).To(Succeed())
		cm, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "plain-"}},
			metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred(), "without an annotation")
		_, err = api.Patch(ctx, cm.Name, types.MergePatchType, []byte(annotations(annotation.LegacyKey, "not correct")),
			metav1.PatchOptions{})
		Expect(err).To(MatchError(apierrors.IsInvalid, "is invalid"), "in the other spelling")
		_, err = api.Patch(ctx, cm.Name, types.MergePatchType,
			[]byte(annotations(annotation.DefaultKey, "a=x.example.com", annotation.LegacyKey, "not correct")),
			metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred(), "only the first spelling counts")
		_, err = api.Patch(ctx, cm.Name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred(), "a change elsewhere")
		_, err = api.Patch(ctx, cm.Name, types.MergePatchType, []byte(annotations("x-kv8s.io/curl-refresh", "soon")),
			metav1.PatchOptions{})
		Expect(err).To(MatchError(ContainSubstring("is not a duration such as 10m")), "only an option")
		_, err = api.Patch(ctx, cm.Name, types.MergePatchType, []byte(annotations(annotation.StatusKey, "{}")),
			metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred(), "the status")
	})
})

// warnings collects the API server's warnings from one policy, because another suite may have
// installed the same policy under another name.
type warnings struct {
	policy string
	texts  []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	if strings.Contains(text, "'"+w.policy+"'") {
		w.texts = append(w.texts, text)
	}
}

var _ = Describe("The annotation policy with the chart's default values", func() {
	It("accepts invalid annotations with the watcher's message as a warning", func(ctx SpecContext) {
		namespace := env.Cluster.Namespace(ctx)
		policy := within(namespace, render(ctx, namespace, []string{"admission-annotations.yaml"}))
		install(ctx, policy)
		config, heard := rest.CopyConfig(env.Cluster.Config), &warnings{policy: policy[0].GetName()}
		config.WarningHandler = heard
		client := suitetest.Must(kubernetes.NewForConfig(config))
		api := client.CoreV1().ConfigMaps(namespace)
		Eventually(ctx, func() ([]string, error) {
			err := try(ctx, api, "not correct")
			return heard.texts, err
		}).Should(ContainElement(HaveSuffix("annotation value 'not correct' does not match expected format key=url")))
		heard.texts = nil
		Expect(try(ctx, api, "page=ftp://example.com")).To(Succeed())
		Expect(heard.texts).To(ConsistOf(
			HaveSuffix("annotation curl-me-that, pair 1 (key page): the scheme must be http or https; use http:// or " +
				"https://")))
		heard.texts = nil
		Expect(try(ctx, api, "page=example.com")).To(Succeed())
		Expect(heard.texts).To(BeEmpty())
	})
})
