package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

var _ = Describe("the operator's settings", func() {
	loopback := []string{"127.0.0.0/8", "::1/128"}
	local := egress.Config{AllowCIDRs: loopback}
	services := egress.Config{AllowCIDRs: []string{"10.96.0.0/12"}}
	denied := egress.Config{DenyCIDRs: []string{"93.184.216.0/24"}}
	nat64 := egress.Config{AllowCIDRs: []string{"64:ff9b::/96"}}
	own64 := egress.Config{NAT64: []string{"2001:db8:64::/96"}}

	DescribeTable("allow and deny hosts, ports and ranges by flag",
		func(ctx SpecContext, cfg egress.Config, raw, expect string) {
			names.SetOther(public)
			names.Set("localhost", "127.0.0.1")
			names.Set("db.team.svc", "10.96.0.7")
			names.Set("db.team.svc.cluster.local", "10.96.0.7")
			names.Set("intranet.example.com", "10.1.2.3")
			names.Set("wiki", public)
			names.Set("nat64.example.com", "64:ff9b::5db8:d822")
			names.Set("own64.example.com", "2001:db8:64::5db8:d822")
			names.Set("own64loop.example.com", "2001:db8:64::7f00:1")
			names.Set("own64short.example.com", "2001:67c:5db8:d822::")
			names.Set("own64private.example.com", "2a00:1:1:a0a:0:100::")
			names.Set("own64skip.example.com", "2a00:1:1:1:5d:b8d8:2200:0")
			names.Set("mapped.example.com", "::ffff:93.184.216.34")
			names.Set("nat64loop.example.com", "64:ff9b::7f00:1")
			gate, held := newGate(cfg)

			err := attempt(ctx, gate, raw)

			if expect == "allow" {
				Expect(err).To(MatchError(errHeld))
				Expect(verdict(ctx, gate, raw)).To(Succeed())
				return
			}
			denied, is := errors.AsType[*egress.DeniedError](err)
			Expect(is).To(BeTrue(), "%v", err)
			rules := string(denied.Rule)
			for _, rule := range denied.Further {
				rules += ", " + string(rule)
			}
			Expect(rules).To(Equal(expect))
			Expect(verdict(ctx, gate, raw)).To(Equal(err))
			Expect(held.attempts()).To(BeEmpty())
		},
		Entry("loopback at any port, by name", local, "http://localhost:34567/", "allow"),
		Entry("loopback at any port, by address", local, "http://127.0.0.1:34567/", "allow"),
		Entry("loopback at any port, by IPv6 address", local, "http://[::1]:34567/", "allow"),
		Entry("loopback inside IPv6", local, "http://[::ffff:127.0.0.1]:34567/", "allow"),
		Entry("no other private address", local, "http://10.0.0.1/", "address"),
		Entry("no other port of public addresses", local, "http://data.example.com:34567/", "port"),
		Entry("no other single label", local, "http://wiki/", "name"),
		Entry("no odd spelling of it", local, "http://127.1:34567/", "host"),
		Entry("no odd port of it", local, "http://localhost:080/", "port"),
		Entry("no port 0 of it", local, "http://localhost:0/", "port"),
		Entry("no zone", egress.Config{AllowCIDRs: []string{"::/0"}}, "http://[fe80::1%25lo]/", "host"),
		Entry("a single address", egress.Config{AllowCIDRs: []string{"10.1.2.3"}},
			"http://intranet.example.com:9999/", "allow"),
		Entry("services of the cluster", services, "http://db.team.svc:5432/", "allow"),
		Entry("services of the cluster, in full", services, "http://db.team.svc.cluster.local/", "allow"),
		Entry("a service outside the range", egress.Config{AllowCIDRs: []string{"10.1.0.0/16"}},
			"http://db.team.svc/", "name, address"),
		Entry("a service outside the range, at another port", egress.Config{AllowCIDRs: []string{"10.1.0.0/16"}},
			"http://db.team.svc:5432/", "name, port, address"),
		Entry("a private address at another port", egress.Config{}, "http://10.0.0.1:5432/", "port, address"),
		Entry("a service that is not looked up, at another port", egress.Config{}, "http://db.team.svc:5432/", "name, port"),
		Entry("deny wins over allow",
			egress.Config{AllowCIDRs: []string{"10.0.0.0/8"}, DenyCIDRs: []string{"10.1.0.0/16"}},
			"http://intranet.example.com/", "deny-cidr"),
		Entry("a public range denied", denied, "http://data.example.com/", "deny-cidr"),
		Entry("a public range denied, inside IPv6", denied, "http://[::ffff:93.184.216.34]/", "deny-cidr"),
		Entry("a public range denied, inside IPv6, by name", denied, "http://mapped.example.com/", "deny-cidr"),
		Entry("a host exempt from the name rule", egress.Config{AllowHosts: []string{"wiki"}},
			"http://wiki/", "allow"),
		Entry("a host exempt from the name rule is subject to the address rule",
			egress.Config{AllowHosts: []string{"*"}}, "http://localhost/", "address"),
		Entry("and to the port rule", egress.Config{AllowHosts: []string{"*"}}, "http://wiki:22/", "port"),
		Entry("the network's own NAT64, to a public address", own64, "http://own64.example.com/", "allow"),
		Entry("the network's own NAT64, to a private address", own64, "http://own64loop.example.com/", "address"),
		Entry("the network's own NAT64 of 32 bits", egress.Config{NAT64: []string{"2001:67c::/32"}},
			"http://own64short.example.com/", "allow"),
		Entry("the network's own NAT64 of 48 bits, to a private address",
			egress.Config{NAT64: []string{"2a00:1:1::/48"}}, "http://own64private.example.com/", "address"),
		Entry("the network's own NAT64 of 64 bits, which skips a byte",
			egress.Config{NAT64: []string{"2a00:1:1:1::/64"}}, "http://own64skip.example.com/", "allow"),
		Entry("a private range allowed behind NAT64",
			egress.Config{NAT64: []string{"2a00:1:1::/48"}, AllowCIDRs: []string{"10.0.0.0/8"}},
			"http://own64private.example.com/", "allow"),
		Entry("a provider's range allowed", egress.Config{AllowCIDRs: []string{"161.26.0.0/16"}},
			"http://161.26.0.10/", "allow"),
		Entry("a host denied", egress.Config{DenyHosts: []string{"*.example.com"}},
			"http://data.example.com/", "deny-host"),
		Entry("a host denied, in any case and with dots", egress.Config{DenyHosts: []string{"Data.Example.com."}},
			"http://DATA.example.COM./", "deny-host"),
		Entry("a host denied and allowed", egress.Config{DenyHosts: []string{"wiki"}, AllowHosts: []string{"wiki"}},
			"http://wiki/", "deny-host"),
		Entry("an address denied as a host", egress.Config{DenyHosts: []string{"93.184.*"}},
			"http://93.184.216.34/", "deny-host"),
		Entry("an address denied as a host, inside IPv6", egress.Config{DenyHosts: []string{"93.184.*"}},
			"http://[::ffff:93.184.216.34]/", "deny-host"),
		Entry("an IPv6 address denied as a host, in another spelling",
			egress.Config{DenyHosts: []string{"2606:4700:4700:0::1111"}}, "http://[2606:4700:4700::1111]/", "deny-host"),
		Entry("an IPv4 address denied as a host, inside IPv6", egress.Config{DenyHosts: []string{"::FFFF:93.184.216.34"}},
			"http://93.184.216.34/", "deny-host"),
		Entry("IPv6 addresses denied as hosts", egress.Config{DenyHosts: []string{"2606:4700:*"}},
			"http://[2606:4700:4700::1111]/", "deny-host"),
		Entry("a pattern does not match its own domain", egress.Config{DenyHosts: []string{"*.data.example.com"}},
			"http://data.example.com/", "allow"),
		Entry("a host on the list", egress.Config{OnlyHosts: []string{"data.example.com"}},
			"http://data.example.com/", "allow"),
		Entry("a host not on the list", egress.Config{OnlyHosts: []string{"data.example.com"}},
			"http://evil.example.com/", "only-host"),
		Entry("a listed host with a private address", egress.Config{OnlyHosts: []string{"*"}},
			"http://intranet.example.com/", "address"),
		Entry("an allowed range does not lift the list",
			egress.Config{OnlyHosts: []string{"data.example.com"}, AllowCIDRs: loopback}, "http://localhost/", "only-host"),
		Entry("one more port", egress.Config{AllowPorts: []int{9000}}, "http://data.example.com:9000/", "allow"),
		Entry("the default ports in addition", egress.Config{AllowPorts: []int{9000}},
			"http://data.example.com:8080/", "allow"),
		Entry("NAT64 allowed: a public address in it", nat64, "http://nat64.example.com/", "allow"),
		Entry("NAT64 allowed: loopback in it", nat64, "http://nat64loop.example.com/", "address"),
		Entry("NAT64 allowed: a denied address in it",
			egress.Config{AllowCIDRs: []string{"64:ff9b::/96"}, DenyCIDRs: []string{"93.184.216.34"}},
			"http://nat64.example.com/", "deny-cidr"),
		Entry("NAT64 allowed: another port", nat64, "http://nat64.example.com:22/", "port"),
	)

	It("allow a random port of loopback by --allow-cidr alone", func(ctx SpecContext) {
		names.Set("localhost", "127.0.0.1")
		open := startCanary()
		gate := suitetest.Must(egress.New(egress.Config{AllowCIDRs: loopback}, egress.Deps{Resolver: names.Resolver()}))

		Expect(attempt(ctx, gate, fmt.Sprintf("http://localhost:%d/", open.Port))).To(Succeed())
		Eventually(open.visits).Should(Receive())
	})

	Describe("the search list of resolv.conf", func() {
		// The number of questions for an unknown name shows whether the search list was used: the
		// name itself takes two questions, one for each family.
		questions := func(ctx context.Context, cfg egress.Config) []int {
			GinkgoHelper()
			gate, _ := newGate(cfg)
			Expect(attempt(ctx, gate, "http://nobody.example.com/")).NotTo(Succeed())
			dial := names.Questions()
			reason, _ := gate.Preview(ctx, "team-a", "http://nobody.example.com/")
			Expect(reason).To(Equal("nobody.example.com does not resolve"))
			return []int{dial, names.Questions() - dial}
		}

		It("is ignored under the default policy", func(ctx SpecContext) {
			Expect(questions(ctx, egress.Config{})).To(HaveEach(2))
		})

		It("is not needed for localhost, which is in the hosts file", func(ctx SpecContext) {
			gate, _ := newGate(egress.Config{AllowCIDRs: loopback})
			_ = attempt(ctx, gate, "http://localhost:1/")
			Expect(verdict(ctx, gate, "http://localhost:1/")).To(Succeed())
			Expect(names.Questions()).To(BeZero())
		})

		It("is applied after the name itself if a range is allowed", func(ctx SpecContext) {
			Expect(questions(ctx, egress.Config{AllowCIDRs: loopback})).To(HaveEach(BeNumerically(">=", 4)))
		})

		It("is applied once to a name without a dot", func(ctx SpecContext) {
			gate, _ := newGate(egress.Config{AllowCIDRs: loopback})
			var asked []string
			traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
				DNSStart: func(info httptrace.DNSStartInfo) { asked = append(asked, info.Host) },
			})

			Expect(attempt(traced, gate, "http://nobody/")).NotTo(Succeed())
			Expect(asked).To(HaveExactElements("nobody"))
			Expect(verdict(traced, gate, "http://nobody/")).NotTo(Succeed())
			Expect(asked).To(HaveExactElements("nobody", "nobody"))
		})

		DescribeTable("is not applied if a server fails for the only family of a name",
			func(ctx SpecContext, address string, kind dnsmessage.Type) {
				gate, _ := newGate(egress.Config{AllowCIDRs: loopback})
				var asked []string
				traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
					DNSStart: func(info httptrace.DNSStartInfo) { asked = append(asked, info.Host) },
				})
				names.Set("data.example.com", address)
				names.Break(kind)

				Expect(attempt(traced, gate, "http://data.example.com/")).NotTo(Succeed())
				Expect(verdict(traced, gate, "http://data.example.com/")).NotTo(Succeed())
				Expect(asked).To(HaveEach("data.example.com."))
			},
			Entry("IPv4", public, dnsmessage.TypeA),
			Entry("IPv6", "2606:4700:4700::1111", dnsmessage.TypeAAAA),
		)
	})

	DescribeTable("are rejected if a flag is invalid",
		func(cfg egress.Config, text string) {
			Expect(egress.New(cfg, egress.Deps{})).Error().To(MatchError("set up egress policy: " + text))
			Expect(cfg.Validate()).To(MatchError(text))
		},
		Entry(nil, egress.Config{AllowCIDRs: []string{"10.0.0.0/33"}},
			`allow-cidr "10.0.0.0/33": not an address range such as 10.0.0.0/8 or ::1/128`),
		Entry(nil, egress.Config{DenyCIDRs: []string{"localhost"}},
			`deny-cidr "localhost": not an address range such as 10.0.0.0/8 or ::1/128`),
		Entry(nil, egress.Config{DenyCIDRs: []string{"fe80::1%lo"}},
			`deny-cidr "fe80::1%lo": not an address range such as 10.0.0.0/8 or ::1/128`),
		Entry(nil, egress.Config{DenyCIDRs: []string{"::ffff:10.0.0.0/104"}},
			`deny-cidr "::ffff:10.0.0.0/104": write an IPv4 range as IPv4`),
		Entry(nil, egress.Config{AllowHosts: []string{"https://data.example.com"}},
			`allow-host "https://data.example.com": not a host pattern such as *.example.com`),
		Entry(nil, egress.Config{DenyHosts: []string{""}}, `deny-host "": not a host pattern such as *.example.com`),
		Entry(nil, egress.Config{DenyHosts: []string{".example.com"}},
			`deny-host ".example.com": not a host pattern such as *.example.com`),
		Entry(nil, egress.Config{DenyHosts: []string{"*.example.com:8080"}},
			`deny-host "*.example.com:8080": not a host pattern such as *.example.com`),
		Entry(nil, egress.Config{DirectHosts: []string{"::ffff:10.*"}},
			`direct-host "::ffff:10.*": not a host pattern such as *.example.com`),
		Entry(nil, egress.Config{OnlyHosts: []string{"a b"}}, `only-host "a b": not a host pattern such as *.example.com`),
		Entry(nil, egress.Config{NAT64: []string{"2a00:1:1::"}},
			`nat64-prefix "2a00:1:1::": not a NAT64 prefix of 32, 40, 48, 56, 64 or 96 bits such as 2001:db8:64::/96`),
		Entry(nil, egress.Config{NAT64: []string{"10.0.0.1/32"}},
			`nat64-prefix "10.0.0.1/32": not a NAT64 prefix of 32, 40, 48, 56, 64 or 96 bits such as 2001:db8:64::/96`),
		Entry(nil, egress.Config{AllowPorts: []int{0}}, `allow-port "0": not a port from 1 to 65535`),
		Entry(nil, egress.Config{AllowPorts: []int{65536}}, `allow-port "65536": not a port from 1 to 65535`),
	)

	DescribeTable("match hosts with patterns",
		func(pattern egress.Pattern, host string, matches bool) {
			Expect(pattern.Match(host)).To(Equal(matches))
		},
		func(pattern egress.Pattern, host string, matches bool) string {
			return fmt.Sprintf("%s and %s: %t", pattern, host, matches)
		},
		Entry(nil, egress.Pattern("data.*"), "data.example.com", true),
		Entry(nil, egress.Pattern("data.*"), "x.data.com", false),
		Entry(nil, egress.Pattern("*.com"), "data.com.example", false),
		Entry(nil, egress.Pattern("a*a"), "aa", true),
		Entry(nil, egress.Pattern("a*a"), "a", false),
		Entry(nil, egress.Pattern("a*b*c"), "a.b.c", true),
		Entry(nil, egress.Pattern("a*b*c"), "a.c", false),
		Entry(nil, egress.Pattern("a*b*b*c"), "a.b.c", false),
		Entry(nil, egress.Pattern("ab*b*c"), "ab.c", false),
	)

	It("include ranges with host bits, single addresses, and the first and the last port", func() {
		Expect(egress.Config{
			AllowCIDRs: []string{"127.0.0.1/8", " ::1 "}, DenyCIDRs: []string{"10.0.0.1"}, AllowPorts: []int{1, 65535},
		}.Validate()).To(Succeed())
	})
})
