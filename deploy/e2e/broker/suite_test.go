// Package broker takes the broker away, in every way in which one can go, and holds
// the system to its promises.
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
	// shortAckWait is after what time the work of a service that was killed is
	// given to another one here; usually it is half a minute.
	shortAckWait = 3 * time.Second
	// aWhile is long enough for something that must not happen to show.
	aWhile = time.Second
)
