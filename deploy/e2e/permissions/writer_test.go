package permissions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// writer creates the writer's service account with the permissions from the chart, and waits until the policy
// is in force.
func writer(ctx context.Context, namespace string) *world.Account {
	GinkgoHelper()
	objects := render(ctx, namespace, []string{"serviceaccounts.yaml", "rbac.yaml"})
	install(ctx, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !strings.HasSuffix(o.GetName(), "-writer") || o.GetKind() == "Role" || o.GetKind() == "RoleBinding"
	}))
	account := env.Cluster.ExistingAccount(ctx, namespace, release+"-writer")
	install(ctx, render(ctx, namespace, []string{"admission-writer.yaml"}))
	// The probe has its own namespace, because a world records all writes in its namespace.
	probe := create(ctx, env.Cluster.Namespace(ctx),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}})
	Eventually(ctx, func() error {
		return patch(ctx, account, probe, `{"data":{"probe":"x"}}`)
	}).Should(MatchError(ContainSubstring("the writer may not change ConfigMaps without the annotation")),
		"the policy is in force")
	return account
}

// annotations returns a patch of annotations, given as names and values. An empty value removes an annotation.
func annotations(pairs ...string) string {
	GinkgoHelper()
	values := map[string]any{}
	for pair := range slices.Chunk(pairs, 2) {
		values[pair[0]] = pair[1]
		if pair[1] == "" {
			values[pair[0]] = nil
		}
	}
	return string(suitetest.Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})))
}

// report returns a patch of the status with written keys.
func report(keys ...string) string { return annotations(annotation.StatusKey, reporting(keys...)) }

// spelling returns a patch of the status that spells a key of another owner differently.
func spelling(theirs string) string {
	return annotations(annotation.StatusKey, strings.Replace(reporting("theirs"), `"theirs":`, theirs, 1))
}

// both returns a patch that merges two patches.
func both(a, b string) string { return strings.TrimSuffix(a, "}") + "," + strings.TrimPrefix(b, "{") }

// Messages of the policy.
const (
	notAsked      = "the writer may not set a key that is not annotated"
	notWritten    = "the writer may not remove a key that is annotated or that it did not write"
	notReportable = "the writer may not report a key that is not annotated"
	noAnnotation  = "the writer may not change annotations other than x-kv8s.io/curl-status"
	noMetadata    = "the writer may not change labels, finalizers or owners"
	unannotated   = "the writer may not change ConfigMaps without the annotation"
	unowned       = "the writer may not empty managedFields"
	protected     = "the writer may not change protected ConfigMaps"
	suspended     = "the writer may not change the data of a suspended ConfigMap"
	ignored       = "the writer may not change the data of a ConfigMap with the label reconciler=ignore"
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

	DescribeTable("is allowed changes that the writer needs:", func(ctx SpecContext, body string, traits ...trait) {
		Expect(patch(ctx, account, create(ctx, namespace, asking(traits...)), body)).To(Succeed())
	},
		Entry("change nothing", `{}`),
		Entry("change a requested key", `{"data":{"mine":"new"}}`),
		Entry("add a requested key", `{"data":{"two":"new"}}`),
		Entry("add a requested binary key", `{"binaryData":{"two":"/w=="}}`),
		Entry("make a key binary", `{"data":{"mine":null},"binaryData":{"mine":"/w=="}}`),
		Entry("make a binary key text", `{"data":{"bin":"text"},"binaryData":{"bin":null}}`, requesting("bin=x.example.com")),
		Entry("report", report("mine", "two", "old", "oldbin")),
		Entry("report a key of another owner", report(), without(annotation.StatusKey)),
		Entry("set a key and report", both(report("mine", "two", "old", "oldbin"), `{"data":{"two":"new"}}`)),
		Entry("remove a key that it wrote and that is no longer requested", `{"data":{"old":null}}`),
		Entry("remove such a binary key", `{"binaryData":{"oldbin":null}}`),
		Entry("remove such a key and its report", both(report("mine", "oldbin"), `{"data":{"old":null}}`)),
		Entry("remove all keys that it wrote, and the status, when nothing is requested any more",
			both(annotations(annotation.StatusKey, ""), `{"data":{"old":null,"mine":null},"binaryData":{"oldbin":null}}`),
			without(annotation.DefaultKey), without(annotation.LegacyKey)),
		Entry("remove the last key of a ConfigMap that has nothing else",
			both(annotations(annotation.StatusKey, ""), `{"data":{"old":null}}`), nothingElse),
		Entry("follow the other spelling if only that is set", `{"data":{"legacy":"new"}}`, without(annotation.DefaultKey)),
		Entry("set keys separated by other white space", `{"data":{"a":"1","b":"2","c":"3","d":"4","e":"5"}}`,
			requesting("a=x\u00a0b=y\u2003c=z\vd=w\r\ne=v")),
		Entry("set a key of a ConfigMap that is no longer suspended", `{"data":{"mine":"new"}}`, suspending(" False ")),
		Entry("set a key if only the second spelling suspends", `{"data":{"mine":"new"}}`,
			suspending(""), with("x-k8s.io/curl-suspend", "true")),
		Entry("report on a suspended ConfigMap", report("mine", "two", "old", "oldbin"), suspending("true")),
		Entry("set a key whose pair breaks a rule", `{"data":{"mine":"new"}}`, requesting("mine=ftp://x.example.com")),
	)

	DescribeTable("is denied changes that the writer does not need:", func(
		ctx SpecContext, body, said string, traits ...trait,
	) {
		created := create(ctx, namespace, asking(traits...))
		Expect(patch(ctx, account, created, body)).To(beForbidden(said))
		Expect(current(ctx, created).ResourceVersion).To(Equal(created.ResourceVersion))
	},
		Entry("change another key", `{"data":{"theirs":"new"}}`, notAsked),
		Entry("add another key", `{"data":{"new":"new"}}`, notAsked),
		Entry("change another key along with its own", `{"data":{"mine":"new","theirs":"new"}}`, notAsked),
		Entry("change another binary key", `{"binaryData":{"bin":"/g=="}}`, notAsked),
		Entry("make another key binary", `{"data":{"theirs":null},"binaryData":{"theirs":"/w=="}}`, notAsked),
		Entry("change a key that only the second spelling names", `{"data":{"legacy":"new"}}`, notAsked),
		Entry("change a key that is named only in a URL", `{"data":{"theirs":"new"}}`, notAsked,
			requesting("mine=https://x.example.com/?old=1&theirs=2")),
		Entry("change a key without a URL", `{"data":{"theirs":"new"}}`, notAsked, requesting("theirs")),
		Entry("change a key that it wrote and that is no longer requested", `{"data":{"old":"new"}}`, notAsked),
		Entry("delete another key", `{"data":{"theirs":null}}`, notWritten),
		Entry("delete another binary key", `{"binaryData":{"bin":null}}`, notWritten),
		Entry("delete a requested key", `{"data":{"mine":null}}`, notWritten),
		Entry("delete a key that another owner had before", `{"data":{"exists":null}}`, notWritten,
			requesting("mine=a.example.com")),
		Entry("delete all keys", `{"data":{"$patch":"delete"}}`, notWritten),
		Entry("delete a key that is named only in a URL in the report", `{"data":{"theirs":null}}`, notWritten),
		Entry("report on another key", report("mine", "theirs"), notReportable),
		Entry("report on another key after a space", spelling(`"theirs" :`), notReportable),
		Entry("report on another key before a space", spelling("\"theirs\":\n "), notReportable),
		Entry("report on another key with a different spelling", spelling(`"\u0074heirs":`), notReportable),
		Entry("claim a key that another owner had before and that is no longer requested", report("mine", "exists"),
			notReportable, requesting("mine=a.example.com")),
		Entry("change annotation and key together",
			both(annotations(annotation.DefaultKey, "theirs=x.example.com"), `{"data":{"theirs":"new"}}`), noAnnotation),
		Entry("change the annotation", annotations(annotation.DefaultKey, "theirs=x.example.com"), noAnnotation),
		Entry("remove the annotation", annotations(annotation.DefaultKey, ""), noAnnotation),
		Entry("add an annotation", annotations("example.com/new", "new"), noAnnotation),
		Entry("change another annotation", annotations("example.com/other", "new"), noAnnotation),
		Entry("remove another annotation", annotations("example.com/other", ""), noAnnotation),
		Entry("change labels", `{"metadata":{"labels":{"app":"y"}}}`, noMetadata),
		Entry("add labels", `{"metadata":{"labels":{"new":"y"}}}`, noMetadata),
		Entry("remove labels", `{"metadata":{"labels":null}}`, noMetadata),
		Entry("add finalizers", `{"metadata":{"finalizers":["example.com/new"]}}`, noMetadata),
		Entry("remove finalizers", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/held"]}}`, noMetadata),
		Entry("add owners",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y"}]}}`, noMetadata),
		Entry("make it immutable", `{"immutable":true}`, "the writer may not change immutable"),
		Entry("set a key of a suspended ConfigMap", `{"data":{"mine":"new"}}`, suspended, suspending("true")),
		Entry("set a binary key of a suspended ConfigMap", `{"binaryData":{"two":"/w=="}}`, suspended, suspending(" 1\n")),
		Entry("remove a key of a suspended ConfigMap", `{"data":{"old":null}}`, suspended,
			with("x-k8s.io/curl-suspend", "T")),
		Entry("set a key if curl-suspend cannot be read", `{"data":{"mine":"new"}}`, suspended, suspending("perhaps")),
		Entry("set a key of an ignored ConfigMap", `{"data":{"mine":"new"}}`, ignored, ignoring),
		Entry("remove a key of an ignored ConfigMap", `{"data":{"old":null}}`, ignored, ignoring),
		Entry("set the key of a pair without a URL", `{"data":{"theirs":"new"}}`, notAsked,
			requesting("=https://x.example.com theirs")),
		Entry("set a key if the annotation is white space", `{"data":{"mine":"new"}}`, notAsked, requesting(" \n\t")),
		Entry("set a key without an annotation", `{"data":{"mine":"new"}}`, unannotated, bare),
		Entry("report without an annotation", report("mine"), unannotated, bare),
		Entry("write kube-root-ca.crt", `{"data":{"mine":"new"}}`, protected, named("", "kube-root-ca.crt")),
		Entry("write in a protected namespace", `{"data":{"mine":"new"}}`, protected, named("kube-public", "asking")),
	)

	It("may start managedFields with an apply, but no more than with a patch", func(ctx SpecContext) {
		cm := create(ctx, namespace, asking())
		apply := func(name, body string) error {
			return world.ErrorOf(account.Client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, apitypes.ApplyPatchType,
				fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},%s}`, name, body),
				metav1.PatchOptions{FieldManager: annotation.FieldManager, Force: new(true)}))
		}
		Expect(apply(cm.Name, `"data":{"two":"new"}`)).To(Succeed())
		Expect(apply(cm.Name, `"data":{"two":"new","theirs":"new"}`)).To(MatchError(ContainSubstring(notAsked)))
		Expect(apply("missing", `"data":{"two":"new"}`)).To(MatchError(apierrors.IsForbidden, "is forbidden"))
	})

	// The policy cannot protect single entries: taking over a key may remove the last field of another manager,
	// so a missing entry proves nothing.
	It("may rewrite managedFields, but not empty them or gain other keys that way", func(ctx SpecContext) {
		cm := create(ctx, namespace, asking())
		Expect(cm.ManagedFields).NotTo(BeEmpty())
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[{}]}}`)).To(MatchError(ContainSubstring(unowned)))
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[{}]},"data":{"mine":"new"}}`)).
			To(MatchError(ContainSubstring(unowned)))
		own := `{"manager":"` + annotation.FieldManager +
			`","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:mine":{}}}}`
		Expect(patch(ctx, account, cm, `{"metadata":{"managedFields":[`+own+`]}}`)).To(Succeed())
		now := current(ctx, cm)
		Expect(now.ManagedFields).To(HaveExactElements(HaveField("Manager", annotation.FieldManager)))
		Expect(now.Data).To(Equal(cm.Data))
		Expect(now.BinaryData).To(Equal(cm.BinaryData))
		Expect(patch(ctx, account, now, `{"metadata":{"managedFields":[`+own+`]},"data":{"theirs":"new"}}`)).
			To(MatchError(ContainSubstring(notAsked)))
	})

	It("is denied creates and deletes even if RBAC grants them", func(ctx SpecContext) {
		tooMuch := account.In(ctx, namespace, kubetest.May("", "configmaps", "delete", "create"))
		DeferCleanup(tooMuch.Revoke)
		cm := create(ctx, namespace, asking())
		const said = "the writer may not create or delete ConfigMaps"
		api := account.Client.CoreV1().ConfigMaps(namespace)
		Expect(api.Delete(ctx, cm.Name, metav1.DeleteOptions{})).To(MatchError(ContainSubstring(said)))
		Expect(world.ErrorOf(api.Create(ctx, asking(), metav1.CreateOptions{}))).To(MatchError(ContainSubstring(said)))
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

// reporting returns a status with written keys, and the key exists, which another owner had before.
func reporting(keys ...string) string {
	s := status.Status{Keys: map[string]status.Entry{"exists": {Error: "KeyExists"}}}
	for _, key := range keys {
		s.Keys[key] = status.Entry{
			URL: `https://a.example.com/"theirs":{"url":"x","sha256":"` + digest + `"}?{}`, SHA256: digest, Size: 7,
			Fence: status.Fence{Epoch: 1, Seq: 7},
		}
	}
	return s.String()
}
