package writer_test

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("An API server in trouble", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	lines := func(level string) (found []string) {
		for line := range strings.SplitSeq(string(w.log.Contents()), "\n") {
			if strings.Contains(line, `"level":"`+level+`"`) {
				found = append(found, line)
			}
		}
		return found
	}

	It("gets no second patch if the response to the first is lost", func() {
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.calls.losing(http.MethodPatch, 1)
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		var version string
		Eventually(func() map[string]string {
			got := w.get("cm")
			version = got.ResourceVersion
			return got.Data
		}).Should(HaveKey("mydata"))
		w.acknowledged()
		Expect(w.get("cm").ResourceVersion).To(Equal(version))
	})

	It("is awaited while it is unavailable, which is logged once, and used within seconds of its return", func() {
		w.start()
		names := []string{"a", "b", "c", "d", "e", "f"}
		for _, name := range names {
			w.create(asking(name, "mydata="+url))
		}
		w.calls.away()
		for _, name := range names {
			cm := w.get(name)
			w.publish(w.content(w.want(cm, "mydata", url), "body"))
		}
		Eventually(w.health.Ready).Should(BeFalse())
		Consistently(w.waiting).WithTimeout(2 * time.Second).Should(BeEquivalentTo(len(names)))
		Expect(lines("warn")).To(HaveLen(1), "one line for the change of state")
		Expect(len(w.calls.all())).To(BeNumerically("<", 20), "no hot loop")
		w.calls.with(nil)
		w.catchesUp(names, "body")
		Expect(lines("warn")).To(HaveLen(1))
	})

	DescribeTable("gets the request again after an inconclusive response", func(code int, body string) {
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.calls.answering(http.MethodPatch, code, nil, body)
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		Eventually(w.calls.all).ShouldNot(BeEmpty())
		w.calls.with(nil)
		w.acknowledged()
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(w.events(cm)).To(BeEmpty())
	},
		Entry("503", 503, "the server is currently unable to handle the request"),
		Entry("404 from a proxy", 404, "404 page not found"),
		Entry("200 with nonsense", 200, "<html>Welcome to the portal</html>"),
	)

	It("delays only the objects of a broken webhook", func() {
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.calls.answering(http.MethodPatch, 500, nil,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,`+
				`"message":"Internal error occurred: failed calling webhook \"x.example.com\": failed to call webhook: `+
				`connection refused"}`)
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(HavePrefix("Warning WriteFailed: ")))
		Expect(w.health.Ready()).To(BeTrue())
		w.acknowledged()
		w.calls.with(nil)
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed: "), HavePrefix("Normal Recovered: ")))
	})

	It("that withdraws the permission causes one log line and one Event, and holds no message", func() {
		w.cluster.Impersonate.UserName = "writer-" + w.namespace
		w.grant("events",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}})
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		other := w.create(asking("other", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"), w.content(w.want(other, "mydata", url), "body"))
		Eventually(w.health.Ready).Should(BeFalse())
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(
			"Warning WriteFailed: curl-me-that may not write ConfigMaps in this namespace; key mydata waits for the " +
				"permission [why-empty 10]"))
		w.acknowledged()
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.events(cm)).To(HaveLen(1))
		Expect(lines("error")).To(HaveLen(1))
		Expect(lines("error")[0]).To(ContainSubstring("grant get and patch of configmaps"))
		w.grant("configmaps",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "patch"}})
		for _, object := range []*corev1.ConfigMap{cm, other} {
			w.await(func() { w.apply(w.content(due(w.want(object, "mydata", url)), "body")) },
				func() bool { return len(w.get(object.Name).Data) == 1 })
		}
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(w.get("other").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(w.health.Ready()).To(BeTrue())
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed: "),
			"Normal Recovered: data.example.com responded; key mydata is up to date"))
	})

	It("that refuses Events still gets values", func() {
		w.cluster.Impersonate.UserName = "writer-" + w.namespace
		w.grant("configmaps",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "patch"}})
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.failure(w.want(cm, "mydata", url), 500))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(lines("error")).To(HaveLen(1))
	})
})

// grant gives the writer's user a permission in the namespace and waits until it is in force.
func (w *world) grant(name string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	user, meta := w.cluster.Impersonate.UserName, metav1.ObjectMeta{Name: name}
	must(w.kube.RbacV1().Roles(w.namespace).Create(w.ctx(),
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}))
	must(w.kube.RbacV1().RoleBindings(w.namespace).Create(w.ctx(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}))
	Eventually(func() (bool, error) {
		review, err := w.kube.AuthorizationV1().SubjectAccessReviews().Create(w.ctx(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: w.namespace, Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0],
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}).Should(BeTrue(), "the right is in force")
}
