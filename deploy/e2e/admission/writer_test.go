package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// annotations returns a patch of annotations.
func annotations(pairs ...string) string {
	GinkgoHelper()
	values := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "" {
			values[pairs[i]] = nil
		}
	}
	return string(suitetest.Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})))
}

// both returns a patch that merges two patches.
func both(a, b string) string { return strings.TrimSuffix(a, "}") + "," + strings.TrimPrefix(b, "{") }

// Messages of the policy.
const (
	notAsked      = "the writer sets no key that the annotation does not name"
	notWritten    = "the writer removes no key that is asked for or that it did not write"
	notReportable = "the writer reports on no key that the annotation does not name"
	noAnnotation  = "the writer changes no annotation but x-kv8s.io/curl-status"
	noMetadata    = "the writer changes no labels, finalizers and owners"
	unannotated   = "the writer leaves ConfigMaps without the annotation alone"
	unowned       = "the writer does not empty the record of who owns which field"
	protected     = "the writer leaves protected ConfigMaps alone"
	suspended     = "the writer changes no data of a suspended ConfigMap"
	ignored       = "the writer changes no data of a ConfigMap that is labelled reconciler=ignore"
)

var _ = Describe("The service account of the writer", Ordered, func() {
	var (
		namespace string
		account   *world.Account
	)
	BeforeAll(func(ctx SpecContext) {
		namespace = env.Cluster.Namespace(ctx)
		account = writer(ctx, namespace)
	})

	bare := []trait{without(annotation.DefaultKey), without(annotation.LegacyKey), without(annotation.StatusKey)}

	DescribeTable("is allowed to set and remove requested keys:", func(
		ctx SpecContext, cm *corev1.ConfigMap, body string,
	) {
		Expect(patch(ctx, account, create(ctx, namespace, cm), body)).To(Succeed())
	},
		Entry("change nothing", asking(), `{}`),
		Entry("change a requested key", asking(), `{"data":{"mine":"new"}}`),
		Entry("add a requested key", asking(), `{"data":{"two":"new"}}`),
		Entry("add a requested binary key", asking(), `{"binaryData":{"two":"/w=="}}`),
		Entry("make a key binary", asking(), `{"data":{"mine":null},"binaryData":{"mine":"/w=="}}`),
		Entry("make a binary key text", asking(with(annotation.DefaultKey, "bin=x.example.com")),
			`{"data":{"bin":"text"},"binaryData":{"bin":null}}`),
		Entry("report", asking(), annotations(annotation.StatusKey, reporting("mine", "two", "old", "oldbin"))),
		Entry("report a key of another owner", asking(without(annotation.StatusKey)),
			annotations(annotation.StatusKey, reporting())),
		Entry("set a key and report", asking(),
			both(annotations(annotation.StatusKey, reporting("mine", "two", "old", "oldbin")), `{"data":{"two":"new"}}`)),
		Entry("remove a key that it wrote and that is no longer requested", asking(), `{"data":{"old":null}}`),
		Entry("remove such a binary key", asking(), `{"binaryData":{"oldbin":null}}`),
		Entry("remove such a key and its report", asking(),
			both(annotations(annotation.StatusKey, reporting("mine", "oldbin")), `{"data":{"old":null}}`)),
		Entry("remove what it wrote and all reports when nothing is requested any more",
			asking(without(annotation.DefaultKey), without(annotation.LegacyKey)),
			both(annotations(annotation.StatusKey, ""), `{"data":{"old":null,"mine":null},"binaryData":{"oldbin":null}}`)),
		Entry("follow the other spelling if only that is set", asking(without(annotation.DefaultKey)),
			`{"data":{"legacy":"new"}}`),
		Entry("set keys separated by other white space",
			asking(with(annotation.DefaultKey, "a=x\u00a0b=y\u2003c=z\vd=w\r\ne=v")),
			`{"data":{"a":"1","b":"2","c":"3","d":"4","e":"5"}}`),
		Entry("set a key of a ConfigMap that is no longer suspended", asking(with("x-kv8s.io/curl-suspend", " False ")),
			`{"data":{"mine":"new"}}`),
		Entry("set a key if only the second spelling suspends",
			asking(with("x-kv8s.io/curl-suspend", ""), with("x-k8s.io/curl-suspend", "true")),
			`{"data":{"mine":"new"}}`),
		Entry("report on a suspended ConfigMap", asking(with("x-kv8s.io/curl-suspend", "true")),
			annotations(annotation.StatusKey, reporting("mine", "two", "old", "oldbin"))),
		Entry("set a key whose pair breaks a rule", asking(with(annotation.DefaultKey, "mine=ftp://x.example.com")),
			`{"data":{"mine":"new"}}`),
	)

	DescribeTable("is denied changes that the writer does not need:", func(
		ctx SpecContext, cm *corev1.ConfigMap, body, said string,
	) {
		created := create(ctx, namespace, cm)
		err := patch(ctx, account, created, body)
		Expect(err).To(MatchError(apierrors.IsForbidden, "is forbidden"))
		Expect(err).To(MatchError(ContainSubstring(said)))
		now := suitetest.Must(env.Cluster.Client.CoreV1().ConfigMaps(created.Namespace).
			Get(ctx, created.Name, metav1.GetOptions{}))
		Expect(now.ResourceVersion).To(Equal(created.ResourceVersion))
	},
		Entry("change another key", asking(), `{"data":{"theirs":"new"}}`, notAsked),
		Entry("add another key", asking(), `{"data":{"new":"new"}}`, notAsked),
		Entry("change another key along with its own", asking(), `{"data":{"mine":"new","theirs":"new"}}`, notAsked),
		Entry("change another binary key", asking(), `{"binaryData":{"bin":"/g=="}}`, notAsked),
		Entry("make another key binary", asking(), `{"data":{"theirs":null},"binaryData":{"theirs":"/w=="}}`, notAsked),
		Entry("change a key that only the second spelling names", asking(), `{"data":{"legacy":"new"}}`, notAsked),
		Entry("change a key that is named only in a URL",
			asking(with(annotation.DefaultKey, "mine=https://x.example.com/?old=1&theirs=2")), `{"data":{"theirs":"new"}}`,
			notAsked),
		Entry("change a key without a URL", asking(with(annotation.DefaultKey, "theirs")), `{"data":{"theirs":"new"}}`,
			notAsked),
		Entry("change a key that it wrote and that is no longer requested", asking(), `{"data":{"old":"new"}}`, notAsked),
		Entry("delete another key", asking(), `{"data":{"theirs":null}}`, notWritten),
		Entry("delete another binary key", asking(), `{"binaryData":{"bin":null}}`, notWritten),
		Entry("delete a requested key", asking(), `{"data":{"mine":null}}`, notWritten),
		Entry("delete a key that another owner had before", asking(with(annotation.DefaultKey, "mine=a.example.com")),
			`{"data":{"exists":null}}`, notWritten),
		Entry("delete all keys", asking(), `{"data":{"$patch":"delete"}}`, notWritten),
		Entry("delete a key that is named only in a URL in the report", asking(), `{"data":{"theirs":null}}`, notWritten),
		Entry("report on another key", asking(), annotations(annotation.StatusKey, reporting("mine", "theirs")),
			notReportable),
		Entry("report on another key after a space", asking(),
			annotations(annotation.StatusKey, strings.Replace(reporting("theirs"), `"theirs":`, `"theirs" :`, 1)),
			notReportable),
		Entry("report on another key before a space", asking(),
			annotations(annotation.StatusKey, strings.Replace(reporting("theirs"), `"theirs":`, "\"theirs\":\n ", 1)),
			notReportable),
		Entry("report on another key with a different spelling", asking(),
			annotations(annotation.StatusKey, strings.Replace(reporting("theirs"), `"theirs":`, `"\u0074heirs":`, 1)),
			notReportable),
		Entry("claim a key that another owner had before and that is no longer requested",
			asking(with(annotation.DefaultKey, "mine=a.example.com")),
			annotations(annotation.StatusKey, reporting("mine", "exists")), notReportable),
		Entry("change annotation and key together", asking(),
			both(annotations(annotation.DefaultKey, "theirs=x.example.com"), `{"data":{"theirs":"new"}}`), noAnnotation),
		Entry("change the annotation", asking(), annotations(annotation.DefaultKey, "theirs=x.example.com"), noAnnotation),
		Entry("remove the annotation", asking(), annotations(annotation.DefaultKey, ""), noAnnotation),
		Entry("add an annotation", asking(), annotations("example.com/new", "new"), noAnnotation),
		Entry("change another annotation", asking(), annotations("example.com/other", "new"), noAnnotation),
		Entry("remove another annotation", asking(), annotations("example.com/other", ""), noAnnotation),
		Entry("change labels", asking(), `{"metadata":{"labels":{"app":"y"}}}`, noMetadata),
		Entry("add labels", asking(), `{"metadata":{"labels":{"new":"y"}}}`, noMetadata),
		Entry("remove labels", asking(), `{"metadata":{"labels":null}}`, noMetadata),
		Entry("add finalizers", asking(), `{"metadata":{"finalizers":["example.com/new"]}}`, noMetadata),
		Entry("remove finalizers", asking(), `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/held"]}}`,
			noMetadata),
		Entry("add owners", asking(),
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y"}]}}`, noMetadata),
		Entry("make it immutable", asking(), `{"immutable":true}`, "the writer leaves immutable as it is"),
		Entry("set a key of a suspended ConfigMap", asking(with("x-kv8s.io/curl-suspend", "true")), `{"data":{"mine":"new"}}`,
			suspended),
		Entry("set a binary key of a suspended ConfigMap", asking(with("x-kv8s.io/curl-suspend", " 1\n")),
			`{"binaryData":{"two":"/w=="}}`, suspended),
		Entry("remove a key of a suspended ConfigMap", asking(with("x-k8s.io/curl-suspend", "T")), `{"data":{"old":null}}`,
			suspended),
		Entry("set a key if curl-suspend cannot be read", asking(with("x-kv8s.io/curl-suspend", "perhaps")),
			`{"data":{"mine":"new"}}`, suspended),
		Entry("set a key of an ignored ConfigMap", asking(ignoring), `{"data":{"mine":"new"}}`, ignored),
		Entry("remove a key of an ignored ConfigMap", asking(ignoring), `{"data":{"old":null}}`, ignored),
		Entry("set the key of a pair without a URL", asking(with(annotation.DefaultKey, "=https://x.example.com theirs")),
			`{"data":{"theirs":"new"}}`, notAsked),
		Entry("set a key if the annotation is white space", asking(with(annotation.DefaultKey, " \n\t")),
			`{"data":{"mine":"new"}}`, notAsked),
		Entry("set a key without an annotation", asking(bare...), `{"data":{"mine":"new"}}`, unannotated),
		Entry("report without an annotation", asking(bare...), annotations(annotation.StatusKey, reporting("mine")),
			unannotated),
		Entry("write kube-root-ca.crt",
			asking(func(cm *corev1.ConfigMap) { cm.Name, cm.GenerateName = "kube-root-ca.crt", "" }), `{"data":{"mine":"new"}}`,
			protected),
		Entry("write in a protected namespace", asking(named("kube-public", "asking")), `{"data":{"mine":"new"}}`, protected),
	)

	It("may start managedFields with an apply, and nothing else", func(ctx SpecContext) {
		cm := create(ctx, namespace, asking())
		apply := func(name, body string) error {
			force := true
			_, err := account.Client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.ApplyPatchType,
				fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},%s}`, name, namespace,
					body),
				metav1.PatchOptions{FieldManager: annotation.FieldManager, Force: &force})
			return err
		}
		Expect(apply(cm.Name, `"data":{"two":"new"}`)).To(Succeed())
		Expect(apply(cm.Name, `"data":{"two":"new","theirs":"new"}`)).To(MatchError(ContainSubstring(notAsked)))
		Expect(apply("missing", `"data":{"two":"new"}`)).To(MatchError(apierrors.IsForbidden, "is forbidden"))
	})

	// The policy cannot protect single entries: taking a key over may remove the last field of
	// another manager, so a missing entry proves nothing.
	It("may rewrite managedFields, but not empty them, and not change data with that", func(ctx SpecContext) {
		cm := create(ctx, namespace, asking())
		Expect(cm.ManagedFields).NotTo(BeEmpty())
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[{}]}}`)).To(MatchError(ContainSubstring(unowned)))
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[{}]},"data":{"mine":"new"}}`)).
			To(MatchError(ContainSubstring(unowned)))
		own := `{"manager":"` + annotation.FieldManager +
			`","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:mine":{}}}}`
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[`+own+`]}}`)).To(Succeed())
		now := suitetest.Must(env.Cluster.Client.CoreV1().ConfigMaps(namespace).Get(ctx, cm.Name, metav1.GetOptions{}))
		Expect(now.ManagedFields).To(HaveExactElements(HaveField("Manager", annotation.FieldManager)))
		Expect(now.Data).To(Equal(cm.Data))
		Expect(now.BinaryData).To(Equal(cm.BinaryData))
		Expect(patch(ctx, account, now, `{"metadata":{"managedFields":[`+own+`]},"data":{"theirs":"new"}}`)).
			To(MatchError(ContainSubstring(notAsked)))
	})

	It("is denied creates and deletes even if RBAC grants them", func(ctx SpecContext) {
		meta := metav1.ObjectMeta{Name: "too-much", Namespace: namespace}
		suitetest.Must(env.Cluster.Client.RbacV1().Roles(namespace).
			Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
			}}, metav1.CreateOptions{}))
		suitetest.Must(env.Cluster.Client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: release + "-writer", Namespace: namespace}},
		}, metav1.CreateOptions{}))
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Cluster.Client.RbacV1().RoleBindings(namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})).
				To(Succeed())
		})
		cm := create(ctx, namespace, asking())
		const said = "the writer neither creates nor deletes ConfigMaps"
		api := account.Client.CoreV1().ConfigMaps(namespace)
		Eventually(ctx, func() error { return api.Delete(ctx, cm.Name, metav1.DeleteOptions{}) }).
			Should(MatchError(ContainSubstring(said)))
		_, err := api.Create(ctx, asking(), metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring(said)))
	})

	It("never exceeds the API server's cost limits for its policy", func(ctx SpecContext) {
		cm := large()
		Expect(patch(ctx, account, create(ctx, namespace, cm), `{"data":{"key-007":"new"}}`)).To(Succeed())
		all := map[string]string{}
		for key, value := range cm.Data {
			all[key] = strings.ToUpper(value)
		}
		body := suitetest.Must(json.Marshal(map[string]any{"data": all}))
		Expect(patch(ctx, account, create(ctx, namespace, large()), string(body))).To(Succeed())
		Expect(patch(ctx, account, create(ctx, namespace, large()), `{"data":{"theirs":"new"}}`)).
			To(MatchError(ContainSubstring(notAsked)))
	})
})

// large returns a ConfigMap with 100 keys, 1 MiB of values and annotations of the maximum size.
func large() *corev1.ConfigMap {
	var pairs []string
	var keys []string
	cm := asking()
	cm.Data, cm.BinaryData = map[string]string{}, nil
	for i := range 100 {
		key := fmt.Sprintf("key-%03d", i)
		keys = append(keys, key)
		pairs = append(pairs, key+"=https://a.example.com/"+strings.Repeat("x", 280))
		cm.Data[key] = strings.Repeat("v", 10<<10)
	}
	cm.Annotations[annotation.DefaultKey] = strings.Join(pairs, "\n")
	cm.Annotations[annotation.StatusKey] = reporting(keys...)
	room := 250<<10 - len(cm.Annotations[annotation.DefaultKey]) - len(cm.Annotations[annotation.StatusKey])
	cm.Annotations[corev1.LastAppliedConfigAnnotation] = strings.Repeat("l", room)
	return cm
}

var _ = Describe("The writer with its policy", func() {
	It("does all its work", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Kubeconfigs: map[string]func(context.Context, string) string{
			world.Writer: func(ctx context.Context, namespace string) string { return writer(ctx, namespace).Kubeconfig },
		}})
		text := w.Origin.Page("/text").Says("first")
		mixed := w.Origin.Page("/mixed").Serves([]byte{0xff})
		cm := w.Create(ctx, "news", world.Holding("theirs", "stays"),
			world.Asking("text="+text.URL()+"\nmixed="+mixed.URL()), world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		cm.EventuallyHasData(ctx, "text", "first")
		cm.EventuallyHasBinary(ctx, "mixed", []byte{0xff})

		By("changing, moving, repairing and pruning")
		text.Says("second")
		mixed.Says("words")
		cm.EventuallyHasData(ctx, "text", "second")
		cm.EventuallyHasData(ctx, "mixed", "words")
		cm.Put(ctx, "text", "by hand")
		cm.EventuallyHasData(ctx, "text", "second")
		cm.Drop(ctx, "text")
		cm.EventuallyHasData(ctx, "text", "second")
		cm.Ask(ctx, "text="+text.URL())
		cm.EventuallyLacks(ctx, "mixed")
		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "text")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("theirs", "stays"))

		By("reporting failures, occupied keys and immutable ConfigMaps")
		broken := w.Origin.Page("/broken").Fails(404)
		ill := w.Create(ctx, "ill", world.Asking("text="+broken.URL()))
		ill.EventuallyReports(ctx, "text", "BadStatus")
		occupied := w.Create(ctx, "occupied", world.Holding("text", "stays"), world.Asking("text="+text.URL()))
		occupied.EventuallyTells(ctx, "KeyExists")
		immutable := w.Create(ctx, "immutable", world.Immutable(), world.Asking("text="+text.URL()))
		immutable.EventuallyTells(ctx, "Immutable")

		By("starting managedFields")
		empty := w.Create(ctx, "empty")
		empty.Ask(ctx, "text="+text.URL())
		empty.EventuallyHasData(ctx, "text", "second")

		By("reading the old spelling")
		old := w.Create(ctx, "old", world.Annotated(annotation.LegacyKey, "text="+text.URL()))
		old.EventuallyHasData(ctx, "text", "second")

		w.EventuallyQuiet(ctx)
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total", `outcome="rejected"`)).To(BeZero())
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total", `outcome="forbidden"`)).To(BeZero())
	})
})
