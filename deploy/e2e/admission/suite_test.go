// Package admission checks the chart's ValidatingAdmissionPolicies and the writer's rights on a
// real API server.
package admission_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestAdmission(t *testing.T) { world.Run(t, "Admission") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })
