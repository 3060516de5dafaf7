// Package fault breaks the services and their dependencies one by one, and checks that the system keeps its
// promises.
package fault_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestFault(t *testing.T) { world.Run(t, "Fault") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are redelivered.
const shortAckWait = 3 * time.Second

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

// neverParking returns flags with enough slots for all keys, so that the fetcher publishes no timers that park
// keys.
func neverParking() map[string][]string {
	return map[string][]string{world.Fetcher: {"--concurrency=256", "--per-host=128"}}
}

// maxLines is the maximum number of lines that a service logs about an outage.
const maxLines = 60

func allRun(w *world.World) bool {
	for _, name := range world.Services() {
		if !w.Service(name).Running() {
			return false
		}
	}
	return true
}

// lines returns the number of log lines of all services.
func lines(w *world.World) int {
	n := 0
	for _, name := range world.Services() {
		n += w.Service(name).Log.Count()
	}
	return n
}

// fill fills the disk of the broker until empty is called.
func fill(ctx context.Context, w *world.World) (empty func(context.Context)) {
	GinkgoHelper()
	const others = "others"
	suitetest.Must(w.JetStream.CreateStream(ctx, jetstream.StreamConfig{Name: others, Subjects: []string{others}}))
	for err := error(nil); err == nil; {
		_, err = w.JetStream.Publish(ctx, others, make([]byte, 900_000))
	}
	return func(ctx context.Context) {
		GinkgoHelper()
		Expect(w.JetStream.DeleteStream(ctx, others)).To(Succeed())
	}
}

// eventuallyRight waits until a restored object holds a text and keeps all promises.
func eventuallyRight(ctx context.Context, w *world.World, name, text string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		object := w.History.Latest(name)
		g.Expect(object).NotTo(BeNil())
		g.Expect(object.Data).To(HaveKeyWithValue("mydata", text))
		g.Expect(w.Checker().Right(promise.Heals, object)).To(BeEmpty())
	}).WithTimeout(restoreLimit).WithPolling(50 * time.Millisecond).Should(Succeed())
}
