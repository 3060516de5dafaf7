package local

import (
	"context"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/rs/zerolog"
)

func started(o brokerOptions) *broker {
	GinkgoHelper()
	o.Log = zerolog.New(GinkgoWriter)
	b, err := startBroker(o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error { return b.Stop(ctx) })
	return b
}

func connect(url string, options ...nats.Option) jetstream.JetStream {
	GinkgoHelper()
	nc, err := nats.Connect(url, options...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nc.Close)
	js, err := jetstream.New(nc)
	Expect(err).NotTo(HaveOccurred())
	return js
}

var _ = Describe("The embedded broker", func() {
	It("keeps streams across a restart, and listens on no port by default", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		first := started(brokerOptions{Dir: dir})
		Expect(first.URL()).To(BeEmpty())
		_, err := connect("", first.Dial()).
			CreateStream(ctx, jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Stop(ctx)).To(Succeed())

		second := started(brokerOptions{Dir: dir})
		_, err = connect("", second.Dial()).Stream(ctx, "KEPT")
		Expect(err).NotTo(HaveOccurred())
	})

	It("accepts messages with a body of 1,000,000 bytes from other programs", func(ctx SpecContext) {
		b := started(brokerOptions{Dir: GinkgoT().TempDir(), Listen: "127.0.0.1:0"})
		js := connect(b.URL())
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}})
		Expect(err).NotTo(HaveOccurred())
		_, err = js.Publish(ctx, "large", make([]byte, 1_000_000+64<<10))
		Expect(err).NotTo(HaveOccurred())
	})

	It("accepts streams whose limits are larger than the free disk", func(ctx SpecContext) {
		b := started(brokerOptions{Dir: GinkgoT().TempDir()})
		_, err := connect("", b.Dial()).CreateStream(ctx, jetstream.StreamConfig{
			Name: "LARGE", Subjects: []string{"large"}, MaxBytes: 1 << 60,
		})
		Expect(err).NotTo(HaveOccurred())
	})

	It("reports an invalid address with one sentence", func(ctx SpecContext) {
		taken, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(taken.Close)
		_, err = startBroker(brokerOptions{Dir: GinkgoT().TempDir(), Listen: taken.Addr().String()})
		Expect(err).To(MatchError(ContainSubstring("address already in use")))
		for _, wrong := range []string{"4222", "localhost", "localhost:x", "localhost:70000"} {
			_, err = startBroker(brokerOptions{Dir: GinkgoT().TempDir(), Listen: wrong})
			Expect(err).To(MatchError(`--nats-listen: "` + wrong + `" is not an address such as 127.0.0.1:4222`))
		}
	})

	It("reports a folder that it cannot use", func() {
		_, err := startBroker(brokerOptions{Dir: "/dev/null/nats", Log: zerolog.New(GinkgoWriter)})
		Expect(err).To(MatchError(ContainSubstring("/dev/null/nats")))
	})
})
