package hostile

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Watchers returns attacks with Watchers. They need the definition of Watchers in the cluster.
func Watchers() []Attack {
	return []Attack{
		watching("has 1,500 Watchers that name one ConfigMap", 1500, func(_ *Tenant, i int) string {
			return fmt.Sprintf("target: {name: shared}, configData: {number: '%d'}", i)
		}),
		watching("has 100 Watchers with rules that are slow to check", 100, func(a *Tenant, i int) string {
			var rules []string
			for n := range 8 {
				rules = append(rules, fmt.Sprintf(`{rule: "%s"}`, slowToCheck(8*i+n)))
			}
			return fmt.Sprintf("sources: [{key: mydata, url: '%s/instant/%d', interval: %s, expect: [%s]}]", a.site(), i,
				Refresh, strings.Join(rules, ", "))
		}),
	}
}

// Secrets returns attacks with credentials of a team.
func Secrets() []Attack {
	return []Attack{secret("has 6,000 small Secrets", 6000, 0), secret("has 160 large Secrets", 160, 750_000)}
}

func watching(name string, n int, spec func(a *Tenant, i int) string) Attack {
	return Attack{Name: name, run: func(ctx context.Context, a *Tenant) {
		api := a.watchers()
		a.parallel(a.scaled(n), func(i int) error {
			defer GinkgoRecover()
			return world.ErrorOf(kubetest.ApplyWatcher(ctx, api, fmt.Sprint("hostile-", i), spec(a, i)))
		})
	}}
}

func (t *Tenant) watchers() *watchv1.Namespaced {
	GinkgoHelper()
	return suitetest.Must(watchv1.NewClient(t.Cluster.Config, nil)).In(t.Namespace)
}

func secret(name string, n, size int) Attack {
	return Attack{Name: name, run: func(ctx context.Context, a *Tenant) {
		text := strings.Repeat("x", size)
		a.parallel(a.scaled(n), func(i int) error {
			return world.ErrorOf(a.Cluster.Client.CoreV1().Secrets(a.Namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprint("hostile-", i), Labels: map[string]string{"x-kv8s.io/curl-credentials": "true"},
				},
				StringData: map[string]string{"bearerToken": text},
			}, metav1.CreateOptions{}))
		})
	}}
}

// clearKeeper deletes the Secrets and Watchers of an attack.
func (t *Tenant) clearKeeper(ctx context.Context) {
	GinkgoHelper()
	secrets := t.Cluster.Client.CoreV1().Secrets(t.Namespace)
	Expect(secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	err := t.watchers().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	Expect(err).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "no definition of Watchers")))
}
