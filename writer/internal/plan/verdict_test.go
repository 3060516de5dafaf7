package plan_test

import (
	"testing"

	"github.com/kv8s/curl-me-that/writer/internal/names"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// The text of a verdict is its name, so that a search for a metric label ends in
// the code.
func TestVerdictNames(t *testing.T) {
	names, err := names.Constants("verdict.go", "Verdict")
	if err != nil || len(names) != len(plan.Verdicts()) {
		t.Fatalf("constants %v, %v", names, err)
	}
	for n, v := range plan.Verdicts() {
		if v.String() != names[n] {
			t.Errorf("%s is called %q", names[n], v)
		}
	}
}
