// Package permissions loads the shipped configuration of NATS and holds it to
// its README: what each identity needs it may do, and nothing else.
package permissions_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestPermissions(t *testing.T) { world.Run(t, "Permissions") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })
