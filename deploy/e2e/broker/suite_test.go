// Package broker stops and damages the broker, and checks that the system keeps its promises.
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
	// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are
	// redelivered.
	shortAckWait = 3 * time.Second
	// aWhile is how long specs watch that something does not happen.
	aWhile = time.Second
)
