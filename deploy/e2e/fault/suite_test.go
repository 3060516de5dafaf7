// Package fault breaks the services and their dependencies one by one, and checks that the system keeps its
// promises.
package fault_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
)

func TestFault(t *testing.T) { world.Run(t, "Fault") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const (
	// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are
	// redelivered.
	shortAckWait = 3 * time.Second
	// aWhile is how long specs watch that something does not happen.
	aWhile = time.Second
)

// behindGateway starts a gateway to the suite's cluster, and returns it with options for a world whose named
// services use it.
func behindGateway(services ...string) (*kubetest.Gateway, world.Options) {
	GinkgoHelper()
	g, kubeconfig := env.Gateway()
	o := world.Options{Kubeconfigs: map[string]func(context.Context, string) string{}}
	for _, name := range services {
		o.Kubeconfigs[name] = kubeconfig
	}
	return g, o
}
