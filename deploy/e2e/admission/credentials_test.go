package admission_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/process/kube/kubetest"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("The service account of keeper --credentials", Ordered, func() {
	var (
		namespace string
		account   *world.Account
	)
	patch := func(ctx SpecContext, name, body string) error {
		_, err := account.Client.CoreV1().Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	}
	BeforeAll(func(ctx SpecContext) {
		namespace = env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, namespace, []string{"credentials.yaml"}, "credentials.namespaces."+namespace+"[0]=rules"))
		// More than the chart grants, so that the policy has to deny it.
		account = env.Cluster.Account(ctx, namespace, "curl-me-that-credentials", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"},
			Verbs: []string{"create", "get", "update", "patch", "delete"},
		})
		for _, name := range []string{"curl-me-that-credentials", "other"} {
			_, err := env.Cluster.Client.CoreV1().Secrets(namespace).Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				Expect(err).NotTo(HaveOccurred())
			}
		}
		Eventually(ctx, func() error { return patch(ctx, "other", `{"data":{"headers.json":"W10="}}`) }).
			Should(MatchError(ContainSubstring("credentials changes no Secret but curl-me-that-credentials")),
				"the policy is in force")
	})

	It("may change the compiled file", func(ctx SpecContext) {
		Expect(patch(ctx, "curl-me-that-credentials", `{"data":{"headers.json":"W10="}}`)).To(Succeed())
	})

	DescribeTable("may change nothing else in its Secret:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, "curl-me-that-credentials",
			body)).To(MatchError(ContainSubstring("credentials changes only the key headers.json")))
	},
		Entry("another key", `{"data":{"other":"W10="}}`),
		Entry("a label", `{"metadata":{"labels":{"a":"b"}}}`),
		Entry("an annotation", `{"metadata":{"annotations":{"a":"b"}}}`),
		Entry("a finalizer", `{"metadata":{"finalizers":["example.com/a"]}}`),
		Entry("immutable", `{"immutable":true}`),
	)

	It("creates and deletes no Secret", func(ctx SpecContext) {
		secrets := account.Client.CoreV1().Secrets(namespace)
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(apierrors.IsForbidden(secrets.Delete(ctx, "curl-me-that-credentials", metav1.DeleteOptions{}))).To(BeTrue())
	})
})

var _ = Describe("A token of fetcher.tokens", func() {
	It("is not accepted by the API server", func(ctx SpecContext) {
		namespace := env.Cluster.Namespace(ctx)
		accounts := env.Cluster.Client.CoreV1().ServiceAccounts(namespace)
		suitetest.Must(accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "fetcher"}},
			metav1.CreateOptions{}))
		use := func(audiences ...string) error {
			token := suitetest.Must(accounts.CreateToken(ctx, "fetcher",
				&authv1.TokenRequest{Spec: authv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{}))
			config := rest.AnonymousClientConfig(kubetest.Config(GinkgoTB()))
			config.BearerToken = token.Status.Token
			_, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
				Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
			return err
		}
		Expect(apierrors.IsUnauthorized(use("rules.example.com"))).To(BeTrue())
		Expect(use()).To(Succeed(), "with the audience of the API server it is")
	})
})
