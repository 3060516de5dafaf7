package compile_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// shown returns the status of a Watcher whose ConfigMap has these annotations, and whose source has these rules.
func shown(annotations map[string]string, rules ...watchv1.Rule) watchv1.WatcherStatus {
	GinkgoHelper()
	return compile.StatusOf(compile.Input{
		Plan: &compile.Plan{
			Sources: []keystate.Spec{{Key: "k", URL: url}}, Expect: map[string][]watchv1.Rule{"k": rules},
		},
		Target:   compiler().Target(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}),
		UpToDate: true, Now: time.Now(),
	})
}

var _ = It("adds the message of the rule that a body does not meet", func() {
	s := shown(map[string]string{annotation.StatusKey: `{"k":{"url":"` + url + `","error":"ContentRejected","rule":2}}`},
		watchv1.Rule{Rule: "true", Message: "other"}, watchv1.Rule{Rule: "false", Message: "no rules yet"})
	Expect(s.Conditions).To(ContainElement(And(
		HaveField("Type", watchv1.ConditionFresh), HaveField("Message", ContainSubstring("ContentRejected (no rules yet)")))))
})

var _ = It("A key that another installation fetched is not shown as fetched", func() {
	s := shown(map[string]string{
		annotation.DefaultKey: "k=" + url, "other.io/curl": "k=" + url,
		annotation.StatusKey: `{"k":{"url":"` + url + `","annotation":"other.io/curl","sha256":"` + sum + `"}}`,
	})
	Expect(s.Sources).To(ConsistOf(And(HaveField("State", watchv1.Failing), HaveField("Reason", "KeyExists"),
		HaveField("SHA256", BeEmpty()))))
})

var _ = DescribeTable("A status whose ConfigMap has a manually edited reason is accepted by the API server",
	func(written, reason string) {
		s := shown(map[string]string{annotation.StatusKey: `{"k":{"url":"` + url + `","error":"` + written + `"}}`})
		Expect(validation.ValidateConditions(s.Conditions, field.NewPath("status"))).To(BeEmpty())
		Expect(s.Sources).To(ConsistOf(HaveField("Reason", reason)))
		Expect(s.Conditions).To(ContainElement(And(HaveField("Type", watchv1.ConditionFresh), HaveField("Reason", reason))))
	},
	Entry("a reason of the writer", "Timeout", "Timeout"),
	Entry("words", "no reason, <b>really</b>", "Unknown"),
	Entry("too long", strings.Repeat("x", 2000), "Unknown"),
)

const url = "https://example.com/a"

var (
	sum   = strings.Repeat("ab", 32)
	began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

// input returns the Input of a Watcher with one source, an applied ConfigMap and these entries.
func input(entries map[string]status.Entry, change ...func(*compile.Input)) compile.Input {
	in := compile.Input{
		Plan: &compile.Plan{
			Generation: 3, Static: 1, CurlNow: "today",
			Target:  types.NamespacedName{Namespace: "team-a", Name: "rules-config"},
			Sources: []keystate.Spec{{Key: "a", URL: url}},
		},
		Target:   holding(entries),
		UpToDate: true, Now: began.Add(time.Hour),
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

// holding returns a ConfigMap with these entries.
func holding(entries map[string]status.Entry) *compile.Target {
	return &compile.Target{
		Meta: informer.Meta{UID: "uid"}, Entries: annotated.EntriesOf(status.Status{Keys: entries}, nil),
		Owners: ownedBy(annotation.FieldManager),
	}
}

// ownedBy returns owners for a manager that wrote key a.
func ownedBy(manager string) annotation.Owners {
	at := metav1.NewTime(began)
	owners, err := annotation.ParseOwners([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`),
	}})
	if err != nil { // entries of tables are made before any spec runs
		panic(err)
	}
	return owners
}

func written() status.Entry {
	return status.Entry{URL: url, SHA256: sum, Size: 5, ChangedAt: began}
}

func failing(e status.Entry, reason string) status.Entry {
	e.Error, e.Since, e.Attempts = reason, began, 6
	if e.URL != url {
		e.ErrorURL = url
	}
	return e
}

// terminal marks a failure that only an edit ends.
func terminal(e status.Entry) status.Entry {
	e.Explanation = &status.Explanation{Terminal: true}
	return e
}

func suspended(in *compile.Input) { in.Plan.Suspended = true }

func withSidecar(in *compile.Input) {
	in.Plan.Sidecar, in.InjectionKnown = &compile.Sidecar{Container: &corev1.Container{Name: "watch"}}, true
}

// summary lists the conditions in order, each as type=status/reason.
func summary(s watchv1.WatcherStatus) string {
	var parts []string
	for _, c := range s.Conditions {
		parts = append(parts, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return strings.Join(parts, " ")
}

// one returns the Input of a Watcher with an entry of its source.
func one(e status.Entry, change ...func(*compile.Input)) compile.Input {
	return input(map[string]status.Entry{"a": e}, change...)
}

func forbidden(e status.Entry) status.Entry { return terminal(failing(e, "AddressDenied")) }

// problem makes the Watcher one that cannot be compiled.
func problem(in *compile.Input) {
	in.UpToDate, in.Plan.Problem = false, &compile.Problem{Reason: "TooLarge", Message: "it is too large"}
}

func outdated(in *compile.Input) { in.UpToDate = false }
func unused(in *compile.Input)   { in.Plan.Sources = nil }

// Conditions of several states.
const (
	fetching = "Ready=Unknown/Progressing Fresh=Unknown/Fetching Reconciling=True/Progressing"
	fine     = "Ready=True/Ready Fresh=True/Fresh"
)

// The table of package keystate has the states of keys.
var _ = DescribeTable("The conditions of a Watcher",
	func(in compile.Input, conditions, fetched string) {
		s := compile.StatusOf(in)
		Expect(summary(s)).To(Equal(conditions))
		Expect(s.Fetched).To(Equal(fetched))
		Expect(s.ObservedGeneration).To(Equal(int64(3)))
		Expect(s.ConfigMapName).To(Equal("rules-config"))
	},
	Entry("while the ConfigMap is applied", input(nil, outdated, func(in *compile.Input) { in.Target = nil }),
		fetching, "0/1"),
	Entry("with the body, while an edit is applied", one(written(), outdated),
		"Ready=Unknown/Progressing Fresh=True/Fresh Reconciling=True/Progressing", "1/1"),
	Entry("before the first fetch", input(nil), fetching, "0/1"),
	Entry("with the body", one(written()), fine, "1/1"),
	Entry("with a body of another digest than requested", one(written(), func(in *compile.Input) {
		in.Plan.Sources[0].SHA256 = strings.Repeat("cd", 32)
	}), fetching, "0/1"),
	Entry("with an entry copied from another object", one(func() status.Entry {
		e := written()
		e.UIDMark = status.UIDMark("other")
		return e
	}()), fetching, "0/1"),
	Entry("when another manager keeps its value in the key",
		one(written(), func(in *compile.Input) { in.Target.Owners = ownedBy("kubectl") }),
		"Ready=False/FetchFailed Fresh=False/Drifted Reconciling=True/FetchFailed", "0/1"),
	Entry("when a refresh fails", one(failing(written(), "BadStatus")), "Ready=True/Ready Fresh=False/BadStatus", "1/1"),
	Entry("when the first fetch fails", one(failing(status.Entry{}, "Timeout")),
		"Ready=False/FetchFailed Fresh=False/Timeout Reconciling=True/FetchFailed", "0/1"),
	Entry("when policy forbids the URL", one(forbidden(status.Entry{})),
		"Ready=False/FetchFailed Fresh=False/AddressDenied Stalled=True/AddressDenied", "0/1"),
	Entry("when policy forbids the address that DNS returns now", one(failing(status.Entry{}, "AddressDenied")),
		"Ready=False/FetchFailed Fresh=False/AddressDenied Reconciling=True/FetchFailed", "0/1"),
	Entry("when policy forbids a URL whose body is stored", one(forbidden(written())),
		"Ready=True/Ready Fresh=False/AddressDenied", "1/1"),
	Entry("when policy forbids a URL whose body is stored, and another fetch fails", input(map[string]status.Entry{
		"a": forbidden(written()), "b": failing(status.Entry{}, "Timeout"),
	}, func(in *compile.Input) { in.Plan.Sources = append(in.Plan.Sources, keystate.Spec{Key: "b", URL: url}) }),
		"Ready=False/FetchFailed Fresh=False/AddressDenied Reconciling=True/FetchFailed", "1/2"),
	Entry("when policy forbids the URL, and the Watcher cannot be compiled", one(forbidden(status.Entry{}), problem),
		"Ready=False/TooLarge Fresh=False/AddressDenied Stalled=True/TooLarge", "0/1"),
	Entry("when an earlier URL failed", one(status.Entry{Error: "Timeout", ErrorURL: "https://example.com/old"}),
		fetching, "0/1"),
	Entry("when the ConfigMap is immutable", one(failing(status.Entry{}, "Immutable")),
		"Ready=False/TargetImmutable Fresh=False/Immutable Stalled=True/TargetImmutable", "0/1"),
	Entry("when the ConfigMap belongs to another Watcher", input(nil, outdated, func(in *compile.Input) {
		in.Target, in.Problem = nil, &compile.Problem{Reason: "TargetExists", Message: "it exists"}
	}), "Ready=False/TargetExists Fresh=Unknown/Fetching Stalled=True/TargetExists", "0/1"),
	Entry("suspended, with the body", one(written(), suspended), "Ready=True/Ready Fresh=Unknown/Suspended", "1/1"),
	Entry("suspended before the first fetch", input(nil, suspended),
		"Ready=Unknown/Suspended Fresh=Unknown/Suspended", "0/1"),
	Entry("with a sidecar that pods get", one(written(), withSidecar), fine+" Injectable=True/Injectable", "1/1"),
	Entry("with a sidecar that pods do not get, which does not affect its data",
		one(written(), withSidecar, func(in *compile.Input) {
			in.NotInjected = &compile.Problem{Reason: watchv1.ReasonPodSecurity, Message: "it is privileged"}
		}), fine+" Injectable=False/PodSecurity", "1/1"),
	Entry("with a sidecar, before the namespaces are listed",
		one(written(), withSidecar, func(in *compile.Input) { in.InjectionKnown = false }),
		fine+" Injectable=Unknown/Progressing", "1/1"),
	Entry("suspended, without sources", input(nil, suspended, unused), fine, "-"),
)

var _ = Describe("The status of a Watcher", func() {
	It("stays the same while nothing changes", func() {
		in := one(failing(written(), "BadStatus"))
		before := compile.StatusOf(in)
		in.Previous, in.Now = compile.Kept(before), in.Now.Add(time.Hour)
		Expect(compile.StatusOf(in)).To(Equal(before))
	})

	It("has a hash that tells keeper whether to write it", func() {
		in := one(failing(written(), "BadStatus"))
		before := compile.StatusOf(in)
		Expect(compile.HashOf(*before.DeepCopy())).To(Equal(compile.HashOf(before)))
		for _, change := range []func(*watchv1.WatcherStatus){
			func(s *watchv1.WatcherStatus) { s.ObservedGeneration++ },
			func(s *watchv1.WatcherStatus) { s.Sources[0].Attempts++ },
			func(s *watchv1.WatcherStatus) { s.Conditions[0].Message += "." },
			func(s *watchv1.WatcherStatus) { s.Conditions = s.Conditions[1:] },
			func(s *watchv1.WatcherStatus) { s.Pods = &watchv1.PodsStatus{} },
			func(s *watchv1.WatcherStatus) { s.ChangedAt = nil },
		} {
			after := *before.DeepCopy()
			change(&after)
			Expect(compile.HashOf(after)).NotTo(Equal(compile.HashOf(before)))
		}
	})

	It("keeps the known state of its sidecar until the namespaces are listed", func() {
		in := input(nil, withSidecar)
		before := compile.StatusOf(in)
		in.Previous, in.InjectionKnown, in.NotInjected = compile.Kept(before), false, nil
		Expect(compile.StatusOf(in)).To(Equal(before))
	})

	It("keeps the transition time while only the reason changes", func() {
		in := one(failing(status.Entry{}, "Timeout"))
		in.Previous = compile.Kept(compile.StatusOf(in))
		in.Now, in.Target = in.Now.Add(time.Hour), holding(map[string]status.Entry{"a": failing(status.Entry{}, "BadStatus")})
		fresh := meta.FindStatusCondition(compile.StatusOf(in).Conditions, watchv1.ConditionFresh)
		Expect(fresh.Reason).To(Equal("BadStatus"))
		Expect(fresh.LastTransitionTime.Time).To(Equal(began.Add(time.Hour)))
		in.Target = holding(map[string]status.Entry{"a": written()})
		fresh = meta.FindStatusCondition(compile.StatusOf(in).Conditions, watchv1.ConditionFresh)
		Expect(fresh.LastTransitionTime.Time).To(Equal(began.Add(2 * time.Hour)))
	})

	It("records when the content changed, by its digest", func() {
		in := one(written())
		in.Previous = compile.Kept(compile.StatusOf(in))
		Expect(in.Previous.ChangedAt.Time).To(Equal(began.Add(time.Hour)))
		in.Now = in.Now.Add(time.Hour)
		other := written()
		other.SHA256 = strings.Repeat("cd", 32)
		in.Target = holding(map[string]status.Entry{"a": other})
		s := compile.StatusOf(in)
		Expect(s.ContentSHA256).NotTo(Equal(in.Previous.ContentSHA256))
		Expect(s.ChangedAt.Time).To(Equal(began.Add(2 * time.Hour)))
	})

	It("changes its content digest with static data, once that is applied", func() {
		in := one(written())
		before := compile.StatusOf(in)
		in.Previous, in.Now = compile.Kept(before), in.Now.Add(time.Hour)
		in.Plan.StaticSHA256, in.UpToDate = compile.HashOf("other"), false
		Expect(compile.StatusOf(in)).To(And(HaveField("ContentSHA256", before.ContentSHA256),
			HaveField("ChangedAt", before.ChangedAt)))
		in.UpToDate = true
		Expect(compile.StatusOf(in).ContentSHA256).NotTo(Equal(before.ContentSHA256))
	})

	It("counts pods if there are any or may be any", func() {
		none, one := &compile.Count{}, &compile.Count{PodsStatus: watchv1.PodsStatus{Injected: 1}}
		pods := func(count *compile.Count, change ...func(*compile.Input)) *watchv1.PodsStatus {
			in := input(nil, change...)
			in.Pods = count
			return compile.StatusOf(in).Pods
		}
		Expect(pods(nil, withSidecar)).To(BeNil())
		Expect(pods(none)).To(BeNil())
		Expect(pods(none, withSidecar)).To(Equal(&none.PodsStatus))
		Expect(pods(one)).To(Equal(&one.PodsStatus))
	})

	It("keeps the input of the next Events", func() {
		in := one(failing(status.Entry{}, "Timeout"), withSidecar)
		in.Pods = &compile.Count{PodsStatus: watchv1.PodsStatus{Injected: 1}}
		s := compile.StatusOf(in)
		kept := compile.Kept(s)
		Expect(kept.Pods).To(Equal(s.Pods))
		for i, c := range s.Conditions {
			Expect(c.ObservedGeneration).To(Equal(int64(3)))
			if c.Type != watchv1.ConditionFresh && c.Type != watchv1.ConditionInjectable {
				c.Message = ""
			}
			Expect(kept.Conditions[i]).To(Equal(c))
		}
		in.Target = holding(map[string]status.Entry{"a": written()})
		Expect(compile.Kept(compile.StatusOf(in)).Conditions).To(ContainElement(And(HaveField("Type",
			watchv1.ConditionFresh), HaveField("Message", ""))))
	})

	It("does not list healthy keys among the failing ones", func() {
		in := input(map[string]status.Entry{"a": failing(status.Entry{}, "Timeout"), "b": written()})
		in.Plan.Sources = append(in.Plan.Sources, keystate.Spec{Key: "b", URL: url})
		Expect(compile.StatusOf(in).Conditions[0].Message).To(Equal("key a: Timeout, since 2026-11-22T12:00:00Z " +
			"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#6]"))
	})

	It("describes a failure as the ConfigMap's status does", func() {
		e := failing(status.Entry{}, "BadStatus")
		e.GaveUp = true
		e.Explanation = &status.Explanation{
			HTTPStatus: 404, Message: "example.com responded with 404", NextTry: began.Add(59 * time.Minute),
		}
		s := compile.StatusOf(one(e))
		for _, c := range s.Conditions {
			Expect(c.Message).To(Equal("key a: example.com responded with 404, since 2026-11-22T12:00:00Z, " +
				"gave up after 6 attempts, next try at 12:59 UTC " +
				"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#8]"))
		}
		Expect(s.Sources[0]).To(And(
			HaveField("HTTPStatus", int32(404)), HaveField("Message", "example.com responded with 404"),
			HaveField("NextTry.Time", began.Add(59*time.Minute)),
		))
	})

	It("truncates a long message, but no character", func() {
		for message, kept := range map[string]int{strings.Repeat("x", 2000): 1020, "x" + strings.Repeat("ü", 999): 1019} {
			in := input(nil, func(in *compile.Input) {
				in.Problem = &compile.Problem{Reason: "TargetExists", Message: message}
			})
			Expect(compile.StatusOf(in).Conditions[0].Message).To(Equal(message[:kept] + " …"))
		}
	})

	It("has the value of curl-now once that is applied", func() {
		in := input(nil, func(in *compile.Input) { in.UpToDate, in.Previous.LastHandledReconcileAt = false, "yesterday" })
		in.Previous = compile.Kept(in.Previous)
		Expect(compile.StatusOf(in).LastHandledReconcileAt).To(Equal("yesterday"))
		in.UpToDate = true
		Expect(compile.StatusOf(in).LastHandledReconcileAt).To(Equal("today"))
	})

	It("lists all failing keys in a message of limited length", func() {
		in, entries := input(nil), map[string]status.Entry{}
		in.Plan.Sources = nil
		for i := range 128 {
			key := strings.Repeat("k", 20) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
			in.Plan.Sources = append(in.Plan.Sources, keystate.Spec{Key: key, URL: url})
			entries[key] = failing(status.Entry{}, "Timeout")
		}
		in.Target = holding(entries)
		message := meta.FindStatusCondition(compile.StatusOf(in).Conditions, watchv1.ConditionFresh).Message
		Expect(len(message)).To(And(BeNumerically("<=", 1024), BeNumerically(">", 800)))
		Expect(message).To(HavePrefix("key " + in.Plan.Sources[0].Key +
			": Timeout, since 2026-11-22T12:00:00Z " +
			"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#6]; "))
		Expect(message).To(HaveSuffix("deploy/docs/why-empty.md#6] …"))
	})

	It("shows each source's content and failure", func() {
		s := compile.StatusOf(one(failing(written(), "BadStatus")))
		Expect(s.Sources).To(Equal([]watchv1.SourceStatus{{
			Key: "a", State: watchv1.Failing, SHA256: sum, Size: 5, FetchedAt: &metav1.Time{Time: began},
			Reason: "BadStatus", Since: &metav1.Time{Time: began}, Attempts: 6,
		}}))
		undated := written()
		undated.ChangedAt = time.Time{}
		s = compile.StatusOf(one(undated))
		Expect(s.Sources).To(Equal([]watchv1.SourceStatus{{Key: "a", State: watchv1.Good, SHA256: sum, Size: 5}}))
		s = compile.StatusOf(one(status.Entry{URL: url}))
		Expect(s.Sources).To(Equal([]watchv1.SourceStatus{{Key: "a", State: watchv1.Pending}}))
	})
})
