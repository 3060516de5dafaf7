// Package hostile lets one tenant misuse everything that a tenant may touch, and measures how
// long another tenant waits meanwhile.
package hostile_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestHostile(t *testing.T) { world.Run(t, "Hostile") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })
