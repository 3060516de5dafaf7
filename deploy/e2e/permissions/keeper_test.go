package permissions_test

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = Describe("The service account of keeper", Ordered, func() {
	var (
		namespace, closed string
		account           *world.Account
	)
	// mayDelete is a permission that keeper does not have, so that only the policy can deny it.
	mayDelete := kubetest.May("", "configmaps", "delete")

	BeforeAll(func(ctx SpecContext) {
		namespace, closed = env.Cluster.Namespace(ctx), env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, namespace, []string{"admission-keeper.yaml"}, "keeper.enabled=true",
			"protectedNamespaces={kube-system,"+closed+"}"))
		rules := world.RulesOf(world.Keeper)
		account = env.Cluster.Account(ctx, namespace, "curl-me-that-keeper", append(rules, mayDelete)...)
		account.In(ctx, closed, rules...)
		Eventually(ctx, func() error {
			return try(ctx, account.Client.CoreV1().ConfigMaps(namespace), nil)
		}).ShouldNot(Succeed(), "the policy is in force")
	})

	// theirs returns the ConfigMap of a Watcher with static and fetched keys.
	theirs := func(label string, traits ...trait) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "cm-", Annotations: map[string]string{
				annotation.DefaultKey: "fetched=x.example.com\nlined=y.example.com\u00a0spaced=z.example.com",
				annotation.StatusKey:  reporting("fetched"),
			}},
			Data:       map[string]string{"static": "a", "fetched": "b", "lined": "c"},
			BinaryData: map[string][]byte{"staticbin": {0xff}, "spaced": {0xff}},
		}
		if label != "" {
			cm.Labels = map[string]string{watchv1.WatcherLabel: label}
		}
		for _, t := range traits {
			t(cm)
		}
		return cm
	}

	DescribeTable("is allowed to change static keys and the annotation:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, account, create(ctx, namespace, theirs("errors")), body)).To(Succeed())
	},
		Entry("change a static key", `{"data":{"static":"new"}}`),
		Entry("remove a static key", `{"data":{"static":null}}`),
		Entry("change a static binary key", `{"binaryData":{"staticbin":"/g=="}}`),
		Entry("remove a static binary key", `{"binaryData":{"staticbin":null}}`),
		Entry("request another URL", annotations(annotation.DefaultKey, "other=y.example.com")),
		Entry("make a static key a fetched key",
			both(annotations(annotation.DefaultKey, "fetched=x.example.com static=y.example.com"), `{"data":{"static":null}}`)),
		Entry("make a fetched key a static key",
			both(annotations(annotation.DefaultKey, ""), `{"data":{"fetched":"static now"}}`)),
		Entry("add its Watcher as the owner", controlled("watch.x-kv8s.io/v1alpha1", "Watcher", "errors")),
	)

	DescribeTable("is denied changes that keeper does not need:", func(ctx SpecContext, body, text string) {
		Expect(patch(ctx, account, create(ctx, namespace, theirs("errors")), body)).To(beForbidden(text))
	},
		Entry("hand a ConfigMap to another Watcher", labelled(`"other"`), "may not change that label"),
		Entry("remove the label", labelled("null"), "may not change that label"),
		Entry("set a key that the annotation names", `{"data":{"fetched":"new"}}`,
			"may not set an annotated key, such as fetched"),
		Entry("remove a key that the annotation names", `{"data":{"fetched":null}}`,
			"may not remove an annotated key, such as fetched"),
		Entry("set such a key after a newline", `{"data":{"lined":"new"}}`, "such as lined"),
		Entry("remove such a key after a newline", `{"data":{"lined":null}}`, "remove an annotated key, such as lined"),
		Entry("set such a binary key after a no-break space", `{"binaryData":{"spaced":"/g=="}}`, "such as spaced"),
		Entry("remove such a binary key after a no-break space", `{"binaryData":{"spaced":null}}`,
			"remove an annotated key, such as spaced"),
		Entry("make a key that the annotation names binary", `{"data":{"fetched":null},"binaryData":{"fetched":"/w=="}}`,
			"may not set an annotated key, such as fetched"),
		Entry("hide a key from the policy with a newline",
			both(annotations(annotation.DefaultKey, "a=x.example.com\nstatic=y.example.com"), `{"data":{"static":"new"}}`),
			"such as static"),
		Entry("hide a key from the policy with a no-break space",
			both(annotations(annotation.DefaultKey, "a=x.example.com\u00a0static=y.example.com"), `{"data":{"static":"new"}}`),
			"such as static"),
		Entry("change the status", annotations(annotation.StatusKey, ""), "may not change x-kv8s.io/curl-status"),
		Entry("make a ConfigMap immutable", `{"immutable":true}`, "may not change immutable or finalizers"),
		Entry("keep a ConfigMap from being deleted", `{"metadata":{"finalizers":["example.com/held"]}}`,
			"may not change immutable or finalizers"),
		Entry("let another kind control a ConfigMap", controlled("apps/v1", "Deployment", "errors"),
			"any other object than its Watcher the controller"),
		Entry("let another Watcher control a ConfigMap", controlled("watch.x-kv8s.io/v1alpha1", "Watcher", "other"),
			"any other object than its Watcher the controller"),
	)

	DescribeTable("is denied changes to a ConfigMap without the label:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, account, create(ctx, namespace, theirs("")), body)).
			To(beForbidden("may not change ConfigMaps without the label"))
	}, Entry("a static key", `{"data":{"static":"new"}}`), Entry("the label", labelled(`"errors"`)))

	It("has no permission to get or delete ConfigMaps, and the policy denies deletes", func(ctx SpecContext) {
		created := create(ctx, namespace, theirs("errors"))
		configMaps := account.Client.CoreV1().ConfigMaps(namespace)
		Expect(configMaps.Delete(ctx, created.Name, metav1.DeleteOptions{})).
			To(MatchError(ContainSubstring("keeper may not delete ConfigMaps")))
		Expect(world.ErrorOf(configMaps.Get(ctx, created.Name, metav1.GetOptions{}))).
			To(MatchError(apierrors.IsForbidden, "is forbidden"))
		for _, rule := range world.RulesOf(world.Keeper) {
			Expect(rule.Verbs).NotTo(ContainElements("delete"))
			Expect(rule.Resources).NotTo(ContainElement("secrets"))
		}
	})

	It("may create the ConfigMap of a Watcher and no other", func(ctx SpecContext) {
		configMaps := account.Client.CoreV1().ConfigMaps(namespace)
		made := theirs("errors")
		delete(made.Annotations, annotation.StatusKey)
		made.Data, made.BinaryData = map[string]string{"static": "a"}, map[string][]byte{"staticbin": {0xff}}
		suitetest.Must(configMaps.Create(ctx, made, metav1.CreateOptions{}))
		for _, bad := range []struct {
			text   string
			change trait
		}{
			{"keeper must label each ConfigMap with its Watcher", func(cm *corev1.ConfigMap) { cm.Labels = nil }},
			{"may not set an annotated key, such as lined", func(cm *corev1.ConfigMap) { cm.Data["lined"] = "c" }},
			{"may not change x-kv8s.io/curl-status", with(annotation.StatusKey, reporting("fetched"))},
			{"may not change protected ConfigMaps", named("", "kube-root-ca.crt")},
			{"may not change immutable or finalizers", func(cm *corev1.ConfigMap) { cm.Immutable = new(true) }},
			{"any other object than its Watcher the controller", controlledBy("apps/v1", "Deployment", "errors")},
			{"any other object than its Watcher the controller", controlledBy("watch.x-kv8s.io/v1alpha1", "Watcher", "other")},
		} {
			cm := made.DeepCopy()
			bad.change(cm)
			Expect(world.ErrorOf(configMaps.Create(ctx, cm, metav1.CreateOptions{}))).To(beForbidden(bad.text))
		}
	})

	It("is denied changes in a protected namespace and of kube-root-ca.crt", func(ctx SpecContext) {
		const text = "keeper may not change protected ConfigMaps"
		Expect(world.ErrorOf(account.Client.CoreV1().ConfigMaps(closed).
			Create(ctx, theirs("errors"), metav1.CreateOptions{}))).To(MatchError(ContainSubstring(text)))
		for _, cm := range []*corev1.ConfigMap{
			create(ctx, closed, theirs("errors")),
			create(ctx, namespace, theirs("errors", named("", "kube-root-ca.crt"))),
		} {
			Expect(patch(ctx, account, cm, `{"data":{"static":"new"}}`)).To(MatchError(ContainSubstring(text)))
		}
	})

	It("never exceeds the API server's cost limits for its policy", func(ctx SpecContext) {
		cm := theirs("errors")
		var pairs []string
		for i := range annotation.MaxPairs {
			pairs = append(pairs, fmt.Sprintf("fetched-%03d=https://a.example.com/%s", i, strings.Repeat("x", 220)))
		}
		cm.Annotations[annotation.DefaultKey] = strings.Join(pairs, "\n")
		long := strings.Repeat("k", 240)
		for i := range 256 { // the maximum of a Watcher
			cm.Data[fmt.Sprintf("%s-%d", long, i)] = strings.Repeat("v", 2<<10)
			cm.BinaryData[fmt.Sprintf("%s-bin-%d", long, i)] = []byte{0xff}
		}
		created := create(ctx, namespace, cm)
		for i := range 256 {
			cm.Data[fmt.Sprintf("%s-%d", long, i)] = "new"
			cm.BinaryData[fmt.Sprintf("%s-bin-%d", long, i)] = []byte{0xfe}
		}
		all := suitetest.Must(json.Marshal(map[string]any{"data": cm.Data, "binaryData": cm.BinaryData}))
		Expect(patch(ctx, account, created, string(all))).To(Succeed())
		Expect(patch(ctx, account, created, `{"data":{"fetched-127":"new"}}`)).
			To(MatchError(ContainSubstring("such as fetched-127")))
	})
})

// controlledBy sets a controller.
func controlledBy(apiVersion, kind, name string) trait {
	owner := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "a", Controller: new(true)}
	return func(cm *corev1.ConfigMap) { cm.OwnerReferences = []metav1.OwnerReference{owner} }
}

// controlled returns a patch that sets a controller.
func controlled(apiVersion, kind, name string) string {
	owner := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":"a","controller":true}`, apiVersion, kind, name)
	return `{"metadata":{"ownerReferences":[` + owner + `]}}`
}

// labelled returns a patch that hands a ConfigMap to a Watcher, given in JSON, or to none (null).
func labelled(watcher string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, watchv1.WatcherLabel, watcher)
}

var _ = Describe("The service account of keeper --credentials", Ordered, func() {
	var (
		namespace string
		account   *world.Account
	)
	patch := func(ctx SpecContext, name, body string) error {
		return world.ErrorOf(account.Client.CoreV1().Secrets(namespace).
			Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}))
	}
	BeforeAll(func(ctx SpecContext) {
		namespace = env.Cluster.Namespace(ctx)
		install(ctx, render(ctx, namespace, []string{"credentials.yaml"}, "credentials.namespaces."+namespace+"[0]=rules"))
		// This is more than the chart grants, so that only the policy can deny it.
		account = env.Cluster.Account(ctx, namespace, "curl-me-that-credentials",
			kubetest.May("", "secrets", "create", "get", "update", "patch", "delete"))
		for _, name := range []string{"curl-me-that-credentials", "other"} {
			Expect(world.ErrorOf(env.Cluster.Client.CoreV1().Secrets(namespace).Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))).
				To(Or(Succeed(), MatchError(apierrors.IsAlreadyExists, "already exists")))
		}
		Eventually(ctx, func() error { return patch(ctx, "other", `{"data":{"headers.json":"W10="}}`) }).
			Should(MatchError(ContainSubstring("credentials may not change any Secret but curl-me-that-credentials")),
				"the policy is in force")
	})

	It("may change the compiled file", func(ctx SpecContext) {
		Expect(patch(ctx, "curl-me-that-credentials", `{"metadata":{"annotations":{"x-kv8s.io/curl-ignored":"a"}},`+
			`"data":{"headers.json":"W10="}}`)).To(Succeed())
	})

	DescribeTable("may change nothing else in its Secret:", func(ctx SpecContext, body string) {
		Expect(patch(ctx, "curl-me-that-credentials", body)).
			To(MatchError(ContainSubstring("credentials may only change the key headers.json")))
	},
		Entry("another key", `{"data":{"other":"W10="}}`),
		Entry("a label", `{"metadata":{"labels":{"a":"b"}}}`),
		Entry("an annotation", `{"metadata":{"annotations":{"a":"b"}}}`),
		Entry("a finalizer", `{"metadata":{"finalizers":["example.com/a"]}}`),
		Entry("immutable", `{"immutable":true}`),
	)

	It("may not create or delete Secrets", func(ctx SpecContext) {
		secrets := account.Client.CoreV1().Secrets(namespace)
		created := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
		Expect(world.ErrorOf(secrets.Create(ctx, created, metav1.CreateOptions{}))).
			To(MatchError(apierrors.IsForbidden, "is forbidden"))
		Expect(secrets.Delete(ctx, "curl-me-that-credentials", metav1.DeleteOptions{})).
			To(MatchError(apierrors.IsForbidden, "is forbidden"))
	})
})
