package watcher_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

	Describe("in the status of what is wrong with the annotations", func() {
		It("asks the writer once for each change of it, and again only if nothing comes of it", func(ctx SpecContext) {
			first := w.watch().awaitReady()
			w.create(ctx, "cm", "not correct")
			Eventually(func() int { return len(w.reports(ctx)) }).Should(Equal(1))
			want := w.reports(ctx)[0].GetWant()
			Expect([]string{
				want.GetNamespace(), want.GetName(), want.GetKey(),
				want.GetUrl(),
			}).To(Equal([]string{w.namespace, "cm", "*", ""}))
			Expect(want.GetUid()).NotTo(BeEmpty())
			w.patch(ctx, somebody, "cm", object{"data": object{"other": "value"}})
			Consistently(func() int { return len(w.reports(ctx)) }).Should(Equal(1))

			By("asking no more when the status has it, also by another watcher")
			report := func(text string) {
				w.patch(ctx, annotation.FieldManager, "cm",
					object{"metadata": object{"annotations": object{annotation.StatusKey: text}}})
			}
			report(`{"*":{"error":"InvalidAnnotation",` +
				`"message":"annotation value 'not correct' does not match expected format key=url"}}`)
			first.stop()
			second := w.watch(audited).awaitReady()
			Consistently(func() int { return len(w.reports(ctx)) }).WithTimeout(time.Second).Should(Equal(1))

			By("asking again while it is mended and the status still has it")
			w.ask(ctx, "cm", "k=example.com")
			Eventually(func() int { return len(w.reports(ctx)) }).Should(BeNumerically(">=", 3),
				"the audit of this watcher is due every 400 ms")
			report("")
			Eventually(second.value(own + "reconciles_published_total")).Should(BeNumerically(">=", 2))
			Expect(w.removals(ctx)).To(BeEmpty(), "* is no key")
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

		DescribeTable("names the pair, the rule and the cure", func(ctx SpecContext, value, text string) {
			w.watch().awaitReady()
			w.create(ctx, "cm", value)
			Eventually(func() []string {
				return w.notes(ctx,
					"InvalidAnnotation")
			}).Should(ConsistOf("annotation curl-me-that, " + text))
		},
			Entry("of a key twice", "a=example.com a=example.com/other",
				"pair 2 (key a): the key appears twice, so none of its urls is fetched; use each key once"),
			Entry("of a key that cannot be", "pa/ge=example.com",
				"pair 1: the key has characters other than letters, digits, -, _ and .; use only those"),
			Entry("of a password", "a=https://user:S3CR3T@example.com/?t=S3CR3T",
				"pair 1 (key a): the url contains a user name or a password; remove it, and ask the operator to configure "+
					"credentials for that host"),
			Entry("of a list with commas", "a=example.com/x, b=example.com", "pair 1 (key a): the url ends with a comma; "+
				"separate pairs by spaces only, or write %2C if the comma belongs to the url; nothing is fetched until this "+
				"is corrected"),
			Entry("of commas", "a=example.com,b=example.com",
				"pair 1 (key a): the host contains a comma; separate pairs by spaces"),
		)
	})

	DescribeTable("reports by one Event what is not followed as it was meant",
		func(ctx SpecContext, more object, reason, text string) {
			w.watch().awaitReady()
			w.create(ctx, "cm", "k=example.com")
			Eventually(w.url(ctx, w.key("cm", "k"))).ShouldNot(BeEmpty())
			w.annotate(ctx, "cm", more)
			Eventually(func() []string { return w.notes(ctx, reason) }).Should(ConsistOf(text))
			w.ask(ctx, "cm", "k=example.com/other")
			Eventually(w.url(ctx, w.key("cm", "k"))).Should(Equal("https://example.com/other"))
			Consistently(func() int { return len(w.notes(ctx, reason)) }).Should(Equal(1))
		},
		Entry("a slip in a name", object{"x-kv8s.io/curl-refrsh": "1h"}, "InvalidAnnotation",
			"annotation x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?"),
		Entry("a second annotation", object{annotation.LegacyKey: "other=example.com"}, "InvalidAnnotation",
			"annotation x-k8s.io/curl-me-that is ignored, because x-kv8s.io/curl-me-that takes precedence; remove one of them"),
		Entry("an interval below the minimum", object{"x-kv8s.io/curl-refresh": "1s"}, "AnnotationAdjusted",
			"curl-refresh is 1s, below the minimum of 10s; 10s is used"),
	)

	DescribeTable("reports by one Event a slip in the name of the annotation itself",
		func(ctx SpecContext, change func(*corev1.ConfigMap), text string) {
			w.watch().awaitReady()
			w.create(ctx, "cm", "", change)
			Eventually(func() []string { return w.notes(ctx, "InvalidAnnotation") }).Should(ConsistOf(text))
		},
		Entry("a typo", func(cm *corev1.ConfigMap) {
			cm.Annotations = map[string]string{"x-kv8s.io/curl-me-tha": "k=example.com"}
		},
			"annotation x-kv8s.io/curl-me-tha is unknown and has no effect; did you mean curl-me-that?"),
		Entry("half of the prefix",
			func(cm *corev1.ConfigMap) { cm.Annotations = map[string]string{"x-kv8s/curl-me-that": "k=example.com"} },
			"annotation x-kv8s/curl-me-that is unknown and has no effect; did you mean x-kv8s.io/curl-me-that?"),
		Entry("a label", func(cm *corev1.ConfigMap) {
			cm.Annotations, cm.Labels = nil, map[string]string{"x-kv8s.io/curl-me-that": "example.com"}
		}, "label x-kv8s.io/curl-me-that has no effect; did you mean the annotation curl-me-that?"),
	)

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

	It("waits until it is allowed, and holds nothing up", func(ctx SpecContext) {
		const user = "a watcher that may not write Events"
		w.grant(ctx, user, "read",
			rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, Resources: []string{"configmaps"}, APIGroups: []string{""}})
		w.watch(func(o *options) {
			o.cluster = rest.CopyConfig(cluster)
			o.cluster.Impersonate.UserName = user
		}).awaitReady()
		w.create(ctx, "cm", "taken=example.com k=example.com/0", withData("taken", "by hand"))
		for n := range 8 {
			url := fmt.Sprintf("example.com/%d", n+1)
			w.ask(ctx, "cm", "taken=example.com k="+url)
			Eventually(w.url(ctx, w.key("cm", "k"))).WithTimeout(15 * time.Second).Should(Equal("https://" + url))
		}
		Expect(w.events(ctx, "KeyExists")).To(BeEmpty())

		w.grant(ctx, user, "tell",
			rbacv1.PolicyRule{Verbs: []string{"create"}, Resources: []string{"events"}, APIGroups: []string{""}})
		w.ask(ctx, "cm", "taken=example.com")
		Eventually(func() []string { return w.notes(ctx, "KeyExists") }).Should(HaveLen(1))
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
