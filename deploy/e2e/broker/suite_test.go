// Package broker stops the broker in every possible way and checks that the system keeps its
// promises.
package broker_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestBroker(t *testing.T) { world.Run(t, "Broker") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const refreshKey = "x-kv8s.io/curl-refresh"

const (
	// shortAckWait is how long before a killed service's work is redelivered here. The default is
	// 30 s.
	shortAckWait = 3 * time.Second
	// aWhile is how long a spec watches before it concludes that something did not happen.
	aWhile = time.Second
)
