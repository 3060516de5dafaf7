package local

import (
	"net"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// started runs a broker with the streams in dir.
func started(dir, listen string) *server.Server {
	GinkgoHelper()
	b := suitetest.Must(startBroker(dir, listen, zerolog.New(GinkgoWriter)))
	DeferCleanup(b.WaitForShutdown)
	DeferCleanup(b.Shutdown)
	return b
}

func connect(url string, options ...nats.Option) jetstream.JetStream {
	GinkgoHelper()
	nc := suitetest.Must(nats.Connect(url, options...))
	DeferCleanup(nc.Close)
	return suitetest.Must(jetstream.New(nc))
}

var _ = Describe("The embedded broker", func() {
	It("keeps streams across a restart, and listens on no port by default", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		first := started(dir, "")
		Expect(first.Addr()).To(BeNil())
		suitetest.Must(connect("", nats.InProcessServer(first)).
			CreateStream(ctx, jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}}))
		first.Shutdown()
		first.WaitForShutdown()

		suitetest.Must(connect("", nats.InProcessServer(started(dir, ""))).Stream(ctx, "KEPT"))
	})

	It("accepts messages with a body of 1,000,000 bytes from other programs", func(ctx SpecContext) {
		js := connect("nats://" + started(GinkgoT().TempDir(), "127.0.0.1:0").Addr().String())
		suitetest.Must(js.CreateStream(ctx, jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}}))
		suitetest.Must(js.Publish(ctx, "large", make([]byte, 1_000_000+64<<10)))
	})

	It("accepts streams whose limits are larger than the free disk", func(ctx SpecContext) {
		suitetest.Must(connect("", nats.InProcessServer(started(GinkgoT().TempDir(), ""))).CreateStream(ctx,
			jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}, MaxBytes: 1 << 60}))
	})

	It("reports an address or a folder that it cannot use with one sentence", func(ctx SpecContext) {
		taken := suitetest.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
		DeferCleanup(taken.Close)
		try := func(dir, listen string) error {
			_, err := startBroker(dir, listen, zerolog.Nop())
			return err
		}
		Expect(try(GinkgoT().TempDir(), taken.Addr().String())).To(MatchError(ContainSubstring("address already in use")))
		for _, wrong := range []string{"4222", "localhost", "localhost:x", "localhost:70000"} {
			Expect(try(GinkgoT().TempDir(), wrong)).
				To(MatchError(`--nats-listen: "` + wrong + `" is not an address such as 127.0.0.1:4222`))
		}
		Expect(try("/dev/null/nats", "")).To(MatchError(ContainSubstring("/dev/null/nats")))
	})
})
