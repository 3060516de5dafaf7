package cluster_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/release"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// securesPods adds specs of the permissions.
func securesPods() {
	It("exposes metrics of every service", func(ctx SpecContext) {
		for _, component := range world.Services() {
			for _, pod := range chart.Pods(ctx, component) {
				Expect(chart.Metrics(ctx, pod)).To(ContainSubstring("\ncurlmethat_"+component+"_"), pod.Name)
			}
		}
	})

	It("restricts the writer to requested keys", func(ctx SpecContext) {
		page := visitor.Page("/pinned").Says(ctx, "asked for")
		cm := visitor.Create(ctx, "pinned", world.Asking("mydata="+page.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasDataWithin(ctx, installation.Patience, "mydata", "asked for")
		writer := as(ctx, release.Writer).CoreV1().ConfigMaps(visitor.Namespace)
		forbidden := MatchError(apierrors.IsForbidden, "is forbidden")
		Expect(world.ErrorOf(writer.Patch(ctx, cm.Name, types.MergePatchType, []byte(`{"data":{"other":"stolen"}}`),
			metav1.PatchOptions{}))).
			To(And(forbidden, MatchError(ContainSubstring("sets no key that the annotation does not name"))))
		Expect(writer.Delete(ctx, cm.Name, metav1.DeleteOptions{})).To(forbidden)
		Expect(world.ErrorOf(as(ctx, release.Writer).CoreV1().Secrets(chart.Namespace).List(ctx, metav1.ListOptions{}))).
			To(forbidden)
	})
}

// as returns a client with a token of a component's service account.
func as(ctx context.Context, component string) kubernetes.Interface {
	GinkgoHelper()
	token := suitetest.Must(cluster.Client.CoreV1().ServiceAccounts(chart.Namespace).
		CreateToken(ctx, chart.Object(component), &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	config := rest.AnonymousClientConfig(cluster.Config)
	config.BearerToken = token.Status.Token
	return suitetest.Must(kubernetes.NewForConfig(config))
}
