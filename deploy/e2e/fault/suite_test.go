// Package fault breaks, one after the other, what the services depend on, and
// the services themselves, and holds the system to its promises.
package fault_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/gateway"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestFault(t *testing.T) { world.Run(t, "Fault") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const (
	// shortAckWait is after what time the work of a service that was killed is
	// given to another one here; usually it is half a minute.
	shortAckWait = 3 * time.Second
	// aWhile is long enough for something that must not happen to show.
	aWhile = time.Second
)

// behindGateway starts a gateway to the cluster of the suite, and returns it
// with the options of a world in which these services go through it.
func behindGateway(services ...string) (*gateway.Gateway, world.Options) {
	GinkgoHelper()
	g, kubeconfig := env.Gateway()
	o := world.Options{Kubeconfigs: map[string]func(context.Context, string) string{}}
	for _, name := range services {
		o.Kubeconfigs[name] = kubeconfig
	}
	return g, o
}
