package rule_test

import (
	"context"
	"fmt"

	"github.com/kv8s/curl-me-that/proto/rule"
)

func ExampleEvaluator_Evaluate() {
	set := rule.Set{Expect: []string{`size(json.prefixes) > 0`}, Select: `json.prefixes`}
	var evaluator rule.Evaluator
	for _, body := range []string{`{"prefixes": ["192.0.2.0/24"]}`, `{"prefixes": []}`, `<html>`} {
		outcome := evaluator.Evaluate(context.Background(), "team-a", set, []byte(body), 0)
		number, cause := outcome.Failed()
		if cause != rule.Passed {
			fmt.Printf("rule %d is %s\n", number, cause)
			continue
		}
		fmt.Printf("selected %s\n", outcome.Selected)
	}
	// Output:
	// selected ["192.0.2.0/24"]
	// rule 1 is false
	// rule 1 is not JSON
}
