package watcher_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
)

// elsewhere returns the same world with another namespace.
func (w *world) elsewhere(ctx context.Context) *world {
	GinkgoHelper()
	other := *w
	other.namespace = kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil)
	return &other
}

var _ = It("A watcher that no longer watches a namespace retracts its wants of it, and removes no data",
	func(ctx SpecContext) {
		there := w.elsewhere(ctx)
		watching := func(namespaces ...string) func(*options) {
			return func(o *options) { o.config.Election.Enabled, o.config.Namespaces = true, namespaces }
		}
		before := w.watch(watching(w.namespace, there.namespace))
		w.satisfied(ctx, "cm", "example.com")
		there.satisfied(ctx, "cm", "example.com")
		before.Stop()
		sequence := w.sequence()
		after := w.watch(watching(w.namespace))
		Eventually(w.retracted(ctx, there.key("cm", "k"))).Should(BeTrue())
		Consistently(w.sequence).Should(Equal(sequence + 1))
		Expect(w.url(ctx, w.key("cm", "k"))()).NotTo(BeEmpty())
		Expect(w.results()).To(BeEmpty())
		Expect(after.Value(own + "out_of_scope_wants")()).To(BeZero())
	})

var _ = It("A forbidden namespace does not delay others after a restart, and keeps its wants until it can be read",
	func(ctx SpecContext) {
		closed := w.elsewhere(ctx)
		both := func(o *options) { o.config.Namespaces = []string{w.namespace, closed.namespace} }
		first := w.watch(both).awaitReady()
		kept, gone := closed.wanted(ctx, "kept", "example.com"), closed.wanted(ctx, "gone", "example.com")
		first.Stop()
		closed.delete(ctx, "gone")

		const user = "a watcher that may read one of two namespaces"
		w.permit(ctx, user)
		w.watch(both, audited, func(o *options) {
			o.cluster = rest.CopyConfig(cluster)
			o.cluster.Impersonate.UserName = user
		}).awaitReady()
		w.create(ctx, "open", "k=example.com/open")
		Eventually(w.url(ctx, w.key("open", "k"))).Should(Equal("https://example.com/open"))
		Consistently(w.retracted(ctx, gone)).Should(BeFalse())

		closed.permit(ctx, user)
		Eventually(w.retracted(ctx, gone)).Should(BeTrue())
		Expect(w.url(ctx, kept)()).To(Equal("https://example.com"))
	})

// permit permits a user to read the ConfigMaps of the namespace.
func (w *world) permit(ctx context.Context, user string) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "reader"}
	rules := []rbacv1.PolicyRule{kubetest.May("", "configmaps", "list", "watch")}
	suitetest.Must(kube.RbacV1().Roles(w.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
		metav1.CreateOptions{}))
	suitetest.Must(kube.RbacV1().RoleBindings(w.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
	}, metav1.CreateOptions{}))
}

var _ = It("A namespace that exceeds its limits gets some of its keys, and others once there is room",
	func(ctx SpecContext) {
		for n := range 3 {
			w.create(ctx, fmt.Sprint("cm-", n), "k=example.com")
		}
		wanted := func() (names []string) {
			for n := range 3 {
				if name := fmt.Sprint("cm-", n); w.want(ctx, w.key(name, "k"))() != nil {
					names = append(names, name)
				}
			}
			return names
		}
		i := w.watch(func(o *options) { o.config.Quota = quota.Limits{Keys: 2} }).awaitReady()
		Eventually(wanted).Should(HaveLen(2))
		Eventually(func() int { return len(w.syncs()) }).Should(Equal(1))
		Expect(proto.Equal(w.syncs()[0].GetSync(), &v1.Sync{Bound: &v1.Bound{Keys: 2}})).To(BeTrue())
		Expect(i.Value(own + "invalid_objects")()).To(BeEquivalentTo(1))
		Expect(i.Value(own+"keys{")()).To(BeEquivalentTo(2), "those within the limit")
		gone := wanted()[0]
		w.delete(ctx, gone)
		Eventually(wanted).WithTimeout(20 * time.Second).Should(And(HaveLen(2), Not(ContainElement(gone))))
	})
