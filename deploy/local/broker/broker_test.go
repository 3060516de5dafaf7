package broker_test

import (
	"net"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/local/broker"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestBroker(t *testing.T) { suitetest.Run(t, "broker") }

func start(o broker.Options) *broker.Broker {
	GinkgoHelper()
	o.Log = zerolog.New(GinkgoWriter)
	b := suitetest.Must(broker.Start(o))
	DeferCleanup(b.Stop)
	return b
}

func connect(url string, options ...nats.Option) jetstream.JetStream {
	GinkgoHelper()
	nc := suitetest.Must(nats.Connect(url, options...))
	DeferCleanup(nc.Close)
	return suitetest.Must(jetstream.New(nc))
}

var _ = Describe("The embedded broker", func() {
	It("keeps streams over a restart, and listens on no port by default", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		first := start(broker.Options{Dir: dir})
		Expect(first.URL()).To(BeEmpty())
		suitetest.Must(connect("", first.Dial()).
			CreateStream(ctx, jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}}))
		first.Stop()

		second := start(broker.Options{Dir: dir})
		suitetest.Must(connect("", second.Dial()).Stream(ctx, "KEPT"))
	})

	It("accepts messages with a body of 1,000,000 bytes from other programs", func(ctx SpecContext) {
		b := start(broker.Options{Dir: GinkgoT().TempDir(), Listen: "127.0.0.1:0"})
		js := connect(b.URL())
		suitetest.Must(js.CreateStream(ctx, jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}}))
		suitetest.Must(js.Publish(ctx, "large", make([]byte, 1_000_000+64<<10)))
	})

	It("reports an invalid address with one sentence", func(ctx SpecContext) {
		taken := suitetest.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
		DeferCleanup(taken.Close)
		Expect(broker.Start(broker.Options{Dir: GinkgoT().TempDir(), Listen: taken.Addr().String()})).Error().
			To(MatchError(ContainSubstring("address already in use")))
		for _, wrong := range []string{"4222", "localhost", "localhost:x", "localhost:70000"} {
			Expect(broker.Start(broker.Options{Dir: GinkgoT().TempDir(), Listen: wrong})).Error().
				To(MatchError(`--nats-listen: "` + wrong + `" is not an address such as 127.0.0.1:4222`))
		}
	})

	It("reports a folder that it cannot use", func() {
		Expect(broker.Start(broker.Options{Dir: "/dev/null/nats", Log: zerolog.New(GinkgoWriter)})).Error().
			To(MatchError(ContainSubstring("/dev/null/nats")))
	})
})
