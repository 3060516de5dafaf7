package egress_test

import (
	"fmt"
	"net"
	"net/http/httptrace"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress/dnstest"
)

var _ = Describe("a name that is hostile by its addresses", func() {
	var (
		names *dnstest.Server
		trap  *canary
		raw   string
		cfg   egress.Config
	)

	BeforeEach(func() {
		names = startDNS()
		trap = startCanary()
		raw = fmt.Sprintf("http://data.example.com:%d/", trap.port())
		// Only the address rule stands between the name and the canary.
		cfg = egress.Config{AllowPorts: []int{trap.port()}}
	})

	DescribeTable("is not connected to",
		func(ctx SpecContext, addrs ...string) {
			names.Set("data.example.com", addrs...)
			gate, err := egress.New(cfg, egress.Deps{Resolver: names.Resolver()})
			Expect(err).NotTo(HaveOccurred())

			err = attempt(ctx, gate, raw)

			Expect(err).To(Equal(&egress.DeniedError{Class: egress.ClassAddress}))
			trap.expectNobody(ctx)
		},
		Entry("on loopback", "127.0.0.1"),
		Entry("on loopback in an IPv6 record", "::ffff:127.0.0.1"),
		Entry("at the unspecified address", "0.0.0.0"),
		Entry("at the unspecified IPv6 address", "::"),
		Entry("with several private addresses", "127.0.0.1", "10.0.0.1", "::1", "fd00::1"),
		Entry("through NAT64", "64:ff9b::7f00:1"),
		Entry("at the Azure platform", "168.63.129.16"),
		Entry("at services of IBM Cloud", "161.26.0.10"),
		Entry("at a private endpoint of IBM Cloud", "166.9.14.5"),
		Entry("at a private endpoint of IBM Cloud, at the end of the range", "166.11.255.255"),
		Entry("at private access of Google Cloud", "199.36.153.8"),
		Entry("at restricted access of Google Cloud", "199.36.153.4"),
		Entry("through ISATAP", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:7f00:1"),
	)

	It("is not connected to through an alias", func(ctx SpecContext) {
		names.Alias("data.example.com", "localhost", "127.0.0.1")
		gate, err := egress.New(cfg, egress.Deps{Resolver: names.Resolver()})
		Expect(err).NotTo(HaveOccurred())

		Expect(attempt(ctx, gate, raw)).To(MatchError(egress.ErrDenied))
		trap.expectNobody(ctx)
	})

	It("is checked again when its address changes after the dry run", func(ctx SpecContext) {
		names.Rebind("data.example.com", []string{public}, []string{"127.0.0.1"})
		gate, err := egress.New(cfg, egress.Deps{Resolver: names.Resolver()})
		Expect(err).NotTo(HaveOccurred())

		Expect(gate.Verdict(ctx, "team-a", raw).Allowed).To(BeTrue())
		Expect(attempt(ctx, gate, raw)).To(MatchError(egress.ErrDenied))
		trap.expectNobody(ctx)
	})

	It("is connected to only at the public ones of its addresses", func(ctx SpecContext) {
		names.Set("data.example.com", "127.0.0.1", public, "::1", "10.1.2.3")
		gate, held := newGate(cfg, names)

		err := attempt(ctx, gate, raw)

		Expect(err).To(Or(MatchError(errHeld), MatchError(egress.ErrUnreachable)))
		Expect(err).NotTo(MatchError(egress.ErrDenied))
		Expect(held.attempts()).To(ConsistOf(fmt.Sprintf("tcp4 %s:%d", public, trap.port())))
		verdict := gate.Verdict(ctx, "team-a", raw)
		Expect(verdict.Allowed).To(BeTrue())
		Expect(verdict.Reason).To(Equal("1 of 4 addresses of data.example.com may be reached, the others are skipped"))
		Expect(verdict.Addresses).To(HaveLen(4))
	})

	It("is knocked at no more than 16 times", func(ctx SpecContext) {
		var many []string
		for i := range 30 {
			many = append(many, fmt.Sprintf("93.184.216.%d", i+1))
		}
		names.Set("data.example.com", many...)
		gate, held := newGate(egress.Config{}, names)

		Expect(attempt(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(held.attempts()).To(HaveLen(16))
	})

	It("is looked up from the root, so that no name of the cluster shadows it", func(ctx SpecContext) {
		gate, _ := newGate(egress.Config{}, names)
		names.Set("data.example.com", public)
		var asked []string
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			DNSStart: func(info httptrace.DNSStartInfo) { asked = append(asked, info.Host) },
		})

		Expect(attempt(traced, gate, "http://data.example.com/")).To(MatchError(errHeld))
		Expect(asked).To(HaveExactElements("data.example.com."))
	})

	It("distinguishes an unknown name from a denied one", func(ctx SpecContext) {
		gate, _ := newGate(egress.Config{}, names)

		err := attempt(ctx, gate, "http://nobody.example.com/")

		var unknown *net.DNSError
		Expect(err).To(BeAssignableToTypeOf(&net.OpError{}))
		Expect(err).NotTo(MatchError(egress.ErrDenied))
		Expect(gate.Verdict(ctx, "team-a", "http://nobody.example.com/").Err).To(BeAssignableToTypeOf(unknown))
	})

	It("does not wait for a silent resolver beyond the dial timeout", func(ctx SpecContext) {
		silent, err := new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		resolver := &net.Resolver{PreferGo: true, Dial: dialTo(silent.LocalAddr())}
		gate, err := egress.New(egress.Config{}, egress.Deps{Resolver: resolver, DialTimeout: 50 * time.Millisecond})
		Expect(err).NotTo(HaveOccurred())

		start := time.Now()
		Expect(attempt(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(gate.Verdict(ctx, "team-a", "http://data.example.com/").Allowed).To(BeFalse())
		Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
	})
})

var _ = Describe("text of a denial", func() {
	It("names the rule and neither address, port nor host", func() {
		for _, class := range []egress.Class{
			egress.ClassSyntax, egress.ClassLength, egress.ClassScheme, egress.ClassUserinfo, egress.ClassHost,
			egress.ClassDenyHost, egress.ClassOnlyHost, egress.ClassName, egress.ClassPort, egress.ClassAddress,
			egress.ClassDenyCIDR,
		} {
			text := (&egress.DeniedError{Class: class}).Error()
			Expect(text).To(MatchRegexp(`^the [^\d]+(2048 characters)?$`))
		}
	})
})
