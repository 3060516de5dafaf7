package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/url"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// deadlined reports the deadlines that are set.
type deadlined struct {
	net.Conn

	set chan<- time.Time
}

func (d deadlined) SetDeadline(t time.Time) error {
	d.set <- t
	return d.Conn.SetDeadline(t)
}

var _ = Describe("a name", func() {
	var (
		trap canary
		raw  string
		cfg  egress.Config
	)

	BeforeEach(func() {
		trap = startCanary()
		raw = fmt.Sprintf("http://data.example.com:%d/", trap.Port)
		// Only the address rule protects the canary.
		cfg = egress.Config{AllowPorts: []int{trap.Port}}
	})

	It("is checked again if its address changes after the dry run", func(ctx SpecContext) {
		names.Rebind("data.example.com", []string{public}, []string{"127.0.0.1"})
		gate := suitetest.Must(egress.New(cfg, egress.Deps{Resolver: names.Resolver()}))

		Expect(verdict(ctx, gate, raw)).To(Succeed())
		Expect(attempt(ctx, gate, raw)).To(MatchError(egress.ErrDenied))
		trap.expectNoVisitor(ctx)
	})

	It("leads only to the public ones of several addresses", func(ctx SpecContext) {
		names.Set("data.example.com", "127.0.0.1", public, "::1", "10.1.2.3")
		gate, held := newGate(cfg)

		err := attempt(ctx, gate, raw)

		Expect(err).To(Or(MatchError(errHeld), MatchError(egress.ErrUnreachable)))
		Expect(err).NotTo(MatchError(egress.ErrDenied))
		Expect(held.attempts()).To(ConsistOf(fmt.Sprintf("tcp4 %s:%d", public, trap.Port)))
		Expect(gate.Preview(ctx, "team-a", raw)).
			To(Equal("1 of 4 addresses of data.example.com are permitted, the others are skipped"))
	})

	It("is left to a proxy only if all of its addresses are allowed", func(ctx SpecContext) {
		names.Set("data.example.com", public, "127.0.0.1")
		names.Set("www.example.com", public, "93.184.216.35")
		gate, _ := newGate(egress.Config{})
		forProxy := func(raw string) error { return gate.For("team-a").CheckForProxy(ctx, suitetest.Must(url.Parse(raw))) }

		for raw, reason := range map[string]string{
			"http://www.example.com/": "all addresses of www.example.com are permitted",
			"http://" + public + "/":  "the address is permitted",
		} {
			Expect(forProxy(raw)).To(Succeed())
			Expect(gate.Preview(ctx, "team-a", raw)).To(Equal(reason))
		}
		Expect(forProxy("http://data.example.com/")).To(Equal(&egress.DeniedError{Rule: egress.RuleAddress}))
		Expect(forProxy("http://10.0.0.1/")).To(Equal(&egress.DeniedError{Rule: egress.RuleAddress}))
		Expect(forProxy("http://nobody.example.com/")).To(BeAssignableToTypeOf(&net.DNSError{}))
	})

	DescribeTable("is checked at the dial, however it was parsed",
		func(ctx SpecContext, addr string, rule egress.Rule) {
			names.SetOther(public)
			gate, held := newGate(egress.Config{DenyHosts: []string{"*.bad.example"}})

			_, err := gate.For("team-a").DialContext(ctx, "tcp", addr)

			Expect(err).To(Equal(&egress.DeniedError{Rule: rule}))
			Expect(held.attempts()).To(BeEmpty())
		},
		Entry("without a port", "data.example.com", egress.RuleHost),
		Entry("with port 0", "data.example.com:0", egress.RulePort),
		Entry("with a port that is not allowed", "data.example.com:22", egress.RulePort),
		Entry("with an address in an odd form", "127.1:80", egress.RuleHost),
		Entry("with a private address", "10.0.0.1:80", egress.RuleAddress),
		Entry("with a single label", "wiki:80", egress.RuleName),
		Entry("with a denied host", "data.bad.example:80", egress.RuleDenyHost),
	)

	It("in a URL is checked, however the URL was parsed", func() {
		gate, _ := newGate(egress.Config{})
		Expect(gate.For("team-a").CheckURL(&url.URL{Scheme: "ftp", Host: "data.example.com"})).
			To(Equal(&egress.DeniedError{Rule: egress.RuleScheme}))
	})

	It("gets at most 16 dials", func(ctx SpecContext) {
		var many []string
		for i := range 30 {
			many = append(many, fmt.Sprintf("93.184.216.%d", i+1))
		}
		names.Set("data.example.com", many...)
		gate, held := newGate(egress.Config{})

		Expect(attempt(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(held.attempts()).To(HaveLen(16))
	})

	It("costs little however many addresses its name server sends", func(ctx SpecContext) {
		many := func(n int) (all []string) {
			for i := range n {
				all = append(all, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
			}
			return all
		}
		gate, _ := newGate(egress.Config{})
		names.Set("data.example.com", many(200)...)
		Expect(attempt(ctx, gate, "http://data.example.com/")).To(MatchError(egress.ErrDenied))
		names.Set("data.example.com", many(300)...)
		var unusable *net.DNSError
		Expect(errors.As(attempt(ctx, gate, "http://data.example.com/"), &unusable)).To(BeTrue())
	})

	It("is looked up from the root, so that no name of the cluster shadows it", func(ctx SpecContext) {
		gate, _ := newGate(egress.Config{})
		names.Set("data.example.com", public)
		var asked []string
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			DNSStart: func(info httptrace.DNSStartInfo) { asked = append(asked, info.Host) },
		})

		Expect(attempt(traced, gate, "http://data.example.com/")).To(MatchError(errHeld))
		Expect(asked).To(HaveExactElements("data.example.com."))
	})

	It("gives different errors if it is unknown and if it is denied", func(ctx SpecContext) {
		gate, _ := newGate(egress.Config{})

		err := attempt(ctx, gate, "http://nobody.example.com/")

		Expect(err).To(BeAssignableToTypeOf(&net.OpError{}))
		Expect(err).NotTo(MatchError(egress.ErrDenied))
		Expect(verdict(ctx, gate, "http://nobody.example.com/")).To(BeAssignableToTypeOf(&net.DNSError{}))
	})

	It("behind a silent resolver fails after the dial timeout", func(ctx SpecContext) {
		silent := suitetest.Must(new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:0"))
		DeferCleanup(silent.Close)
		deadlines := make(chan time.Time, 64)
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
			return deadlined{conn, deadlines}, err
		}}
		deps := egress.Deps{Resolver: resolver, DialTimeout: 50 * time.Millisecond}
		gate := suitetest.Must(egress.New(egress.Config{}, deps))

		start := time.Now()
		Expect(attempt(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(verdict(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
		Eventually(deadlines).Should(Receive(BeTemporally("==", time.Unix(1, 0))), "the query is not aborted")
	})
})
