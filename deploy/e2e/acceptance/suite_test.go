// Package acceptance runs the built services as processes against a real API server, and checks them against the
// promises to users, and what all screens show of a mistake and of credentials.
package acceptance_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestAcceptance(t *testing.T) { world.Run(t, "Acceptance") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// aWhile is how long specs watch that something does not happen.
const aWhile = time.Second
