// Package permissions runs the shipped NATS configuration and compares it with its README: each identity can do
// exactly what it needs.
package permissions_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestPermissions(t *testing.T) { world.Run(t, "Permissions") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })
