package watcher_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A pair that breaks a rule", func() {
	const sentence = "annotation curl-me-that, pair 2 (key k): the scheme must be http or https; use http:// or https://"

	It("emits one Event, keeps the value of its key, and does not delay other pairs", func(ctx SpecContext) {
		w := newWorld(ctx)
		first := w.watch().awaitReady()
		key := w.satisfied(ctx, "cm", "example.com")
		w.ask(ctx, "cm", "free=example.com k=ftp://example.com/?token=S3CR3T")
		Eventually(w.url(ctx, w.key("cm", "free"))).Should(Equal("https://example.com"))
		Eventually(w.retracted(ctx, key)).Should(BeTrue())
		Eventually(func() []string { return w.notes(ctx, "InvalidAnnotation") }).Should(ConsistOf(sentence))
		Eventually(first.value(own + "invalid_objects")).Should(BeEquivalentTo(1))

		By("emitting no other Event when other pairs change or the watcher restarts")
		w.ask(ctx, "cm", "more=example.com free=example.com k=ftp://example.com/other")
		Eventually(w.url(ctx, w.key("cm", "more"))).Should(Equal("https://example.com"))
		first.stop()
		w.watch().awaitReady()
		w.ask(ctx, "cm", "more=example.com/2 free=example.com k=ftp://example.com/other")
		Eventually(w.url(ctx, w.key("cm", "more"))).Should(Equal("https://example.com/2"))
		Consistently(func() int { return len(w.notes(ctx, "InvalidAnnotation")) }).Should(Equal(1))
		Expect(w.removals(ctx)).To(BeEmpty())

		By("publishing the fixed pair as in sync")
		w.ask(ctx, "cm", "free=example.com k=example.com")
		Eventually(w.url(ctx, key)).Should(Equal("https://example.com"))
		Expect(w.want(ctx, key)().GetCached().GetSha256()).To(Equal(digest("body of example.com")))
	})
})

var _ = Describe("A forbidden namespace", func() {
	It("does not delay others after a restart, and keeps its wants until it can be read", func(ctx SpecContext) {
		w, closed := newWorld(ctx), newWorld(ctx)
		closed.nats, closed.js, closed.pipeline = w.nats, w.js, w.pipeline
		both := func(o *options) { o.config.Namespaces = []string{w.namespace, closed.namespace} }
		first := w.watch(both).awaitReady()
		kept, gone := closed.key("kept", "k"), closed.key("gone", "k")
		for _, key := range []pipeline.Key{kept, gone} {
			closed.create(ctx, key.Name, "k=example.com")
			Eventually(w.url(ctx, key)).ShouldNot(BeEmpty())
		}
		first.stop()
		closed.delete(ctx, "gone")

		const user = "a watcher that may read one of two namespaces"
		read := rbacv1.PolicyRule{
			Verbs: []string{"list", "watch"}, Resources: []string{"configmaps"},
			APIGroups: []string{""},
		}
		w.grant(ctx, user, "read", read)
		w.watch(both, audited, func(o *options) {
			o.cluster = rest.CopyConfig(cluster)
			o.cluster.Impersonate.UserName = user
		}).awaitReady()
		w.create(ctx, "open", "k=example.com/open")
		Eventually(w.url(ctx, w.key("open", "k"))).Should(Equal("https://example.com/open"))
		Consistently(w.retracted(ctx, gone)).Should(BeFalse())

		closed.grant(ctx, user, "read", read)
		Eventually(w.retracted(ctx, gone)).Should(BeTrue())
		Expect(w.url(ctx, kept)()).To(Equal("https://example.com"))
	})
})

// grant grants a user a permission in the namespace.
func (w *world) grant(ctx context.Context, user, name string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name, Namespace: w.namespace}
	_, err := kube.RbacV1().Roles(w.namespace).Create(ctx,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = kube.RbacV1().RoleBindings(w.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}
