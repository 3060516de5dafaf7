package plan_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

var _ = It("adds the message of the rule that a body does not meet", func() {
	const url = "https://rules.example.com/"
	t := plan.ReadTarget(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		annotation.StatusKey: `{"k":{"url":"` + url + `","error":"ContentRejected","rule":2}}`,
	}}})
	rules := []watchv1.Rule{{Rule: "true", Message: "other"}, {Rule: "false", Message: "no rules yet"}}
	s := plan.Compute(plan.Input{
		Plan:   &plan.Plan{Sources: []plan.Source{{Key: "k", URL: url}}, Expect: map[string][]watchv1.Rule{"k": rules}},
		Target: t, Applied: true, Now: time.Now(),
	})
	Expect(s.Conditions).To(ContainElement(And(
		HaveField("Type", watchv1.ConditionFresh), HaveField("Message", ContainSubstring("ContentRejected (no rules yet)")))))
})

var _ = DescribeTable("A status whose ConfigMap has a manually edited reason is accepted by the API server",
	func(written, reason string) {
		const url = "https://rules.example.com/"
		t := plan.ReadTarget(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			annotation.StatusKey: `{"k":{"url":"` + url + `","error":"` + written + `"}}`,
		}}})
		s := plan.Compute(plan.Input{
			Plan:   &plan.Plan{Sources: []plan.Source{{Key: "k", URL: url}}},
			Target: t, Applied: true, Now: time.Now(),
		})
		Expect(validation.ValidateConditions(s.Conditions, field.NewPath("status"))).To(BeEmpty())
		Expect(s.Sources).To(ConsistOf(HaveField("Reason", reason)))
		Expect(s.Conditions).To(ContainElement(And(HaveField("Type", watchv1.ConditionFresh), HaveField("Reason", reason))))
	},
	Entry("a reason of the writer", "Timeout", "Timeout"),
	Entry("words", "no reason, <b>really</b>", "Unknown"),
	Entry("too long", strings.Repeat("x", 2000), "Unknown"),
)
