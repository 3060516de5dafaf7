package credentials

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestCredentials(t *testing.T) { suitetest.Run(t, "Credentials") }

// own is the prefix of keeper's metrics, and patience is how long rights may take to take effect.
const own, patience = "curlmethat_keeper_", time.Minute

var _ = Describe("keeper --credentials", func() {
	const hidden = "s3cr3t-value"
	var (
		admin         *kubernetes.Clientset
		release, a, b string
		compiling     *teams
		log           *strings.Builder
		registry      *prometheus.Registry
		writes        int
		fail          func(*http.Request) bool
	)
	secretsRule := func(verbs ...string) rbacv1.PolicyRule { return kubetest.May("", "secrets", verbs...) }
	eventsRule := kubetest.May("", "events", "create")

	grant := func(ctx context.Context, namespace string, rules ...rbacv1.PolicyRule) {
		GinkgoHelper()
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "credentials"}
		suitetest.Must(admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{}))
		suitetest.Must(admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "credentials"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: release, Name: "credentials"}},
		}, metav1.CreateOptions{}))
	}
	put := func(ctx context.Context, namespace, name, host, token string) *corev1.Secret {
		GinkgoHelper()
		return suitetest.Must(admin.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{TeamLabel: "true"},
				Annotations: map[string]string{HostsAnnotation: host},
			},
			StringData: map[string]string{"bearerToken": token},
		}, metav1.CreateOptions{}))
	}
	compiled := func(ctx context.Context) (found []string) {
		GinkgoHelper()
		s := suitetest.Must(admin.CoreV1().Secrets(release).Get(ctx, "compiled", metav1.GetOptions{}))
		var entries []headerfile.Entry
		Expect(json.Unmarshal(s.Data[headerfile.TeamKey], &entries)).To(Succeed())
		for _, e := range entries {
			found = append(found,
				strings.NewReplacer(a, "a", b, "b").Replace(e.Namespaces[0])+" "+e.Host+" "+e.Headers["Authorization"])
		}
		return found
	}
	events := func(ctx context.Context) (notes []string) {
		GinkgoHelper()
		for _, e := range suitetest.Must(admin.CoreV1().Events(a).List(ctx, metav1.ListOptions{})).Items {
			Expect(e.InvolvedObject.Kind).To(Equal("Secret"))
			notes = append(notes, e.InvolvedObject.Name+": "+e.Message)
		}
		return notes
	}

	BeforeEach(func(ctx SpecContext) {
		config := kubetest.Config(GinkgoTB())
		admin = kubernetes.NewForConfigOrDie(config)
		for _, namespace := range []*string{&release, &a, &b} {
			*namespace = kubetest.Namespace(ctx, GinkgoTB(), admin, "credentials-", nil)
		}
		as := rest.CopyConfig(config)
		as.Impersonate.UserName = "system:serviceaccount:" + release + ":credentials"
		writes, fail = 0, func(*http.Request) bool { return false }
		as.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return kubetest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				if fail(r) {
					return nil, fmt.Errorf("no connection")
				}
				if r.Method == http.MethodPatch {
					writes++
				}
				return next.RoundTrip(r)
			})
		})
		suitetest.Must(admin.CoreV1().Secrets(release).Create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "compiled"}}, metav1.CreateOptions{}))
		named := secretsRule("get", "patch")
		named.ResourceNames = []string{"compiled"}
		grant(ctx, release, named)
		log = &strings.Builder{}
		registry = prometheus.NewRegistry()
		rt := &process.Runtime{Log: zerolog.New(log), Health: process.NewHealth(), Metrics: registry}
		settings := Config{Into: release + "/compiled", From: []string{a, b + "/rules"}}
		compiling = suitetest.Must(newTeams(rt, settings, as))
		DeferCleanup(func() { Expect(log.String()).NotTo(ContainSubstring(hidden)) })
	})
	compile := func(ctx context.Context) {
		GinkgoHelper()
		Expect(compiling.compile(ctx)).To(Succeed())
	}

	It("compiles the Secrets that it may read, and their changes", func(ctx SpecContext) {
		grant(ctx, a, secretsRule("list"), eventsRule)
		named := secretsRule("get")
		named.ResourceNames = []string{"rules"}
		grant(ctx, b, named, eventsRule)
		first := put(ctx, a, "first", "https://api.example.com", hidden+"-a")
		put(ctx, b, "rules", "https://api.example.com", hidden+"-b")
		put(ctx, b, "other", "https://other.example.com", hidden)
		Eventually(ctx, func() []string { compile(ctx); return compiled(ctx) }).WithTimeout(patience).Should(ConsistOf(
			"a api.example.com Bearer s3cr3t-value-a", "b api.example.com Bearer s3cr3t-value-b",
		))
		written := writes
		compile(ctx)
		Expect(writes).To(Equal(written), "nothing has changed")

		By("a changed Secret")
		first.StringData = map[string]string{"bearerToken": "new"}
		suitetest.Must(admin.CoreV1().Secrets(a).Update(ctx, first, metav1.UpdateOptions{}))
		compile(ctx)
		Expect(compiled(ctx)).To(ContainElement("a api.example.com Bearer new"))

		By("a conflicting Secret")
		put(ctx, a, "second", "https://api.example.com", hidden)
		put(ctx, a, "third", "", hidden)
		compile(ctx)
		compile(ctx)
		Expect(compiled(ctx)).To(HaveLen(2))
		Expect(events(ctx)).To(ConsistOf(
			"second: https://api.example.com is already served by Secret first",
			"third: names no host; annotate it with x-kv8s.io/curl-hosts, such as https://api.example.com/v1",
		))
		Expect(suitetest.MetricValue(registry, own+"credentials_problems")).To(Equal(2.))
		shown := suitetest.Must(admin.CoreV1().Secrets(release).Get(ctx, "compiled", metav1.GetOptions{}))
		Expect(shown.Annotations).To(HaveKeyWithValue(ignoredAnnotation, a+"/second: https://api.example.com is already "+
			"served by Secret first\n"+a+"/third: names no host; annotate it with x-kv8s.io/curl-hosts, such as "+
			"https://api.example.com/v1\n"))

		By("an API server that is unavailable for a namespace")
		fail = func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/"+a+"/secrets") }
		compile(ctx)
		Expect(compiled(ctx)).To(HaveLen(2))
		Expect(log.String()).To(ContainSubstring("could not compile credentials, the last ones stay"))
		fail = func(*http.Request) bool { return false }

		By("a deleted Secret")
		Expect(admin.CoreV1().Secrets(a).Delete(ctx, "first", metav1.DeleteOptions{})).To(Succeed())
		compile(ctx)
		Expect(compiled(ctx)).To(ContainElement("a api.example.com Bearer "+hidden), "the second is served now")
	})

	It("removes the credentials of a namespace that it may no longer read, and logs that once", func(ctx SpecContext) {
		grant(ctx, a, secretsRule("list"), eventsRule)
		put(ctx, a, "first", "https://api.example.com", hidden)
		Eventually(ctx, func() []string { compile(ctx); return compiled(ctx) }).WithTimeout(patience).Should(HaveLen(1))
		Expect(admin.RbacV1().RoleBindings(a).Delete(ctx, "credentials", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func() []string { compile(ctx); return compiled(ctx) }).WithTimeout(patience).Should(BeEmpty())
		compile(ctx)
		Expect(suitetest.MetricValue(registry, own+"credentials_problems")).To(Equal(2.), "it may not read b either")
		Expect(strings.Count(log.String(), `"namespace":"`+a+`","message":"no permission to read the Secrets`)).To(Equal(1))
	})

	It("removes only the credentials of a namespace with too many Secrets, whose memory and Events are bounded",
		func(ctx SpecContext) {
			grant(ctx, a, secretsRule("list"), eventsRule)
			named := secretsRule("get")
			named.ResourceNames = []string{"rules"}
			grant(ctx, b, named, eventsRule)
			put(ctx, a, "good", "https://api.example.com", hidden+"-a")
			put(ctx, a, "large", "https://large.example.com", strings.Repeat("x", 500<<10))
			Eventually(ctx, func() []string { compile(ctx); return compiled(ctx) }).WithTimeout(patience).
				Should(ConsistOf("a api.example.com Bearer s3cr3t-value-a"))
			Expect(events(ctx)).To(ConsistOf(ContainSubstring("large: data of more than 450 KiB is not a credential")))

			By("an Event for each of many")
			for i := range maxSecrets - 2 {
				put(ctx, a, fmt.Sprint("many-", i), "", "x")
			}
			compiling.recorder = kube.NewRecorder(compiling.secrets.(corev1client.EventsGetter), service, clock.RealClock{},
				kube.EventBudget{Budget: budget.New(budget.Config{Burst: 3, Refill: time.Hour}, time.Now), Log: compiling.log})
			compile(ctx)
			compile(ctx)
			Expect(compiled(ctx)).To(HaveLen(1))
			Expect(events(ctx)).To(HaveLen(4))
			Expect(strings.Count(log.String(), "exceeded its Event budget")).To(Equal(1))

			By("one more, and a change of another namespace")
			put(ctx, a, "one-more", "", "x")
			put(ctx, b, "rules", "https://api.example.com", hidden+"-b")
			compile(ctx)
			compile(ctx)
			Expect(compiled(ctx)).To(ConsistOf("b api.example.com Bearer s3cr3t-value-b"))
			Expect(strings.Count(log.String(), "more than 64 Secrets have the label")).To(Equal(1))
			Expect(suitetest.MetricValue(registry, own+"credentials_problems")).To(Equal(1.))
			Expect(admin.CoreV1().Secrets(a).Delete(ctx, "one-more", metav1.DeleteOptions{})).To(Succeed())
			compile(ctx)
			Expect(compiled(ctx)).To(HaveLen(2))
		})

	It("writes before it emits Events, and counts a failed write", func(ctx SpecContext) {
		grant(ctx, a, secretsRule("list"), eventsRule)
		put(ctx, a, "first", "https://api.example.com", hidden)
		put(ctx, a, "second", "", hidden)
		fail = func(r *http.Request) bool {
			return r.Method == http.MethodPost && writes == 0 || r.Method == http.MethodPatch
		}
		Eventually(ctx, compiling.compile).WithArguments(ctx).WithTimeout(patience).
			Should(MatchError(ContainSubstring("no connection")))
		Expect(suitetest.MetricValue(registry, own+"credentials_problems")).
			To(Equal(3.), "the second, namespace b, the write")
		Expect(suitetest.MetricValue(registry, own+"credentials_timestamp_seconds")).To(BeZero())
		fail = func(r *http.Request) bool { return r.Method == http.MethodPost && writes == 0 }
		compile(ctx)
		Expect(compiled(ctx)).To(HaveLen(1))
		Expect(events(ctx)).To(HaveLen(1))
		Expect(suitetest.MetricValue(registry, own+"credentials_timestamp_seconds")).To(BeNumerically(">", 0))
	})

	It("compiles each Secret once, and all of a namespace whose Secrets are named, too", func() {
		Expect((&Config{From: []string{"a", "a/rules", "b/rules", "b/more", "b/rules", "c/rules", "c"}}).names()).
			To(Equal(map[string][]string{"a": nil, "b": {"more", "rules"}, "c": nil}))
	})

	It("rejects settings that name no Secret", func() {
		for _, s := range []Config{
			{Into: "a"},
			{Into: "/a"},
			{Into: "a/b/c"},
			{Into: "a/b", From: []string{"A!"}},
			{Into: "a/b", From: []string{"a/"}},
			{Into: "a/b", From: []string{"a/b/c"}},
		} {
			Expect(s.Validate()).To(HaveOccurred(), "%v", s)
		}
		Expect((&Config{Into: "a/b", From: []string{"a", "b/c"}}).Validate()).To(Succeed())
	})
})
