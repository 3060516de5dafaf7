package watcher_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("What is wrong is reported to the owner", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	Describe("of an annotation that cannot be read", func() {
		const sentence = "annotation value 'not correct' does not match expected format key=url"

		It("takes one Event, however often the object or the watcher changes", func(ctx SpecContext) {
			first := w.watch().awaitReady()
			w.create(ctx, "cm", "not correct")
			Eventually(func() []string { return w.notes(ctx, "InvalidAnnotation") }).Should(ConsistOf(sentence))
			event := w.events(ctx, "InvalidAnnotation")[0]
			Expect(event.Type).To(Equal("Warning"))
			Expect(event.Regarding.Kind).To(Equal("ConfigMap"))
			Expect(event.Regarding.Name).To(Equal("cm"))

			w.patch(ctx, somebody, "cm", object{"data": object{"other": "value"}})
			first.stop()
			w.watch().awaitReady()
			w.watch().awaitReady()
			w.patch(ctx, somebody, "cm", object{"data": object{"other": "another value"}})
			Consistently(func() int { return len(w.notes(ctx, "InvalidAnnotation")) }).Should(Equal(1))
			Expect(w.want(ctx, w.key("cm", "not"))()).To(BeNil())
		})

		It("does not touch what was written before", func(ctx SpecContext) {
			w.watch().awaitReady()
			key := w.satisfied(ctx, "cm", "example.com")
			w.ask(ctx, "cm", "not correct")
			Eventually(w.retracted(ctx, key)).Should(BeTrue())
			Consistently(func() int { return len(w.removals(ctx)) }).Should(BeZero())

			By("asking again once it can be read, without a fetch of what is there")
			w.ask(ctx, "cm", "k=example.com")
			Eventually(w.url(ctx, key)).Should(Equal("https://example.com"))
			Expect(w.want(ctx, key)().GetCached().GetSha256()).To(Equal(digest("body of example.com")))
		})
	})

	Describe("of a pair that breaks a rule", func() {
		const sentence = "annotation curl-me-that, pair 2 (key k): the scheme must be http or https; use http:// or https://"

		It("takes one Event, keeps the value of its key, and holds up no other pair", func(ctx SpecContext) {
			first := w.watch().awaitReady()
			key := w.satisfied(ctx, "cm", "example.com")
			w.ask(ctx, "cm", "free=example.com k=ftp://example.com/?token=S3CR3T")
			Eventually(w.url(ctx, w.key("cm", "free"))).Should(Equal("https://example.com"))
			Eventually(w.retracted(ctx, key)).Should(BeTrue())
			Eventually(func() []string { return w.notes(ctx, "InvalidAnnotation") }).Should(ConsistOf(sentence))
			Eventually(first.value(own + "invalid_objects")).Should(BeEquivalentTo(1))

			By("saying nothing more when the other pairs change or the watcher does")
			w.ask(ctx, "cm", "more=example.com free=example.com k=ftp://example.com/other")
			Eventually(w.url(ctx, w.key("cm", "more"))).Should(Equal("https://example.com"))
			first.stop()
			w.watch().awaitReady()
			w.ask(ctx, "cm", "more=example.com/2 free=example.com k=ftp://example.com/other")
			Eventually(w.url(ctx, w.key("cm", "more"))).Should(Equal("https://example.com/2"))
			Consistently(func() int { return len(w.notes(ctx, "InvalidAnnotation")) }).Should(Equal(1))
			Expect(w.removals(ctx)).To(BeEmpty())

			By("asking again once it is right, without a fetch of what is there")
			w.ask(ctx, "cm", "free=example.com k=example.com")
			Eventually(w.url(ctx, key)).Should(Equal("https://example.com"))
			Expect(w.want(ctx, key)().GetCached().GetSha256()).To(Equal(digest("body of example.com")))
		})
	})

	It("reports by one Event that a key exists and is of somebody else, and wants nothing", func(ctx SpecContext) {
		w.watch().awaitReady()
		tape := w.record("curl.want.>")
		w.create(ctx, "cm", "taken=example.com free=example.com", withData("taken", "by hand"))
		Eventually(w.url(ctx, w.key("cm", "free"))).ShouldNot(BeEmpty())
		Eventually(func() []string { return w.notes(ctx, "KeyExists") }).Should(ConsistOf(
			"key taken already exists and is not managed by curl-me-that; remove it from the ConfigMap, or choose another " +
				"key [why-empty 3]"))
		w.patch(ctx, somebody, "cm", object{"data": object{"taken": "by hand again"}})
		Consistently(func() int { return len(w.notes(ctx, "KeyExists")) }).Should(Equal(1))
		Expect(tape.urls()).To(HaveLen(1))
		Expect(w.reports(ctx)).To(HaveLen(1), "by which the writer adds it to the status")

		By("reporting nothing once the status has it, and another URL once")
		refused := func(url string) {
			s := status.Status{Keys: map[string]status.Entry{"taken": {Error: "KeyExists", ErrorURL: url}}}
			w.patch(ctx, annotation.FieldManager, "cm",
				object{"metadata": object{"annotations": object{annotation.StatusKey: s.String()}}})
		}
		refused("https://example.com")
		w.ask(ctx, "cm", "taken=example.com/other free=example.com")
		Eventually(func() int { return len(w.reports(ctx)) }).Should(Equal(2))
		refused("https://example.com/other")
		w.patch(ctx, somebody, "cm", object{"data": object{"taken": "by hand once more"}})
		Consistently(func() int { return len(w.reports(ctx)) }).Should(Equal(2))
		w.ask(ctx, "cm", "taken=example.com free=example.com")
		Eventually(func() int { return len(w.reports(ctx)) }).Should(Equal(3))

		By("wanting it as soon as it is free")
		w.patch(ctx, somebody, "cm", object{"data": nil})
		Eventually(w.url(ctx, w.key("cm", "taken"))).Should(Equal("https://example.com"))
	})
})

var _ = Describe("A namespace that may not be read", func() {
	It("holds up no other after a restart, and loses no want until it can be read", func(ctx SpecContext) {
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

// grant gives a user a right in the namespace of this world.
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
