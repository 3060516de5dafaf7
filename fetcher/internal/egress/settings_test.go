package egress_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

func TestEgress(t *testing.T) { suitetest.Run(t, "egress") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

// public is an address that the default policy permits.
const public = "93.184.216.34"

// errHeld is the error with which the specs stop permitted attempts.
var errHeld = errors.New("withheld by the test")

// holder records permitted attempts and stops them.
type holder struct {
	mu   sync.Mutex
	seen []string
}

func (h *holder) deny(network, address string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, network+" "+address)
	return errHeld
}

func (h *holder) attempts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// newGate returns a gate that uses the test's DNS server and stops every attempt.
func newGate(cfg egress.Config, names *suitetest.DNS) (*egress.Gate, *holder) {
	GinkgoHelper()
	held := &holder{}
	return must(egress.New(cfg, egress.Deps{Resolver: names.Resolver(), Deny: held.deny})), held
}

// attempt simulates a fetch up to the first packet. It returns errHeld if the policy permits the
// attempt.
func attempt(ctx context.Context, gate *egress.Gate, raw string) error {
	u, err := egress.ParseURL(raw)
	if err != nil {
		return err
	}
	policy := gate.For("team-a")
	if err := policy.CheckURL(u); err != nil {
		return err
	}
	conn, err := policy.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), egress.Port(u)))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// verdict returns the error of a dry run.
func verdict(ctx context.Context, gate *egress.Gate, raw string) error {
	_, err := gate.Verdict(ctx, "team-a", raw)
	return err
}

// canary listens on loopback and must not get a connection.
type canary struct {
	*net.TCPAddr
	visits chan string
}

func startCanary() canary {
	GinkgoHelper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	c := canary{listener.Addr().(*net.TCPAddr), make(chan string, 16)}
	note := func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew { // in the order of the connections
			c.visits <- conn.RemoteAddr().String()
		}
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{ConnState: note}}
	server.Start()
	DeferCleanup(server.Close)
	return c
}

// expectNoVisitor connects to the canary and expects to be its first visitor.
func (c canary) expectNoVisitor(ctx context.Context) {
	GinkgoHelper()
	conn := must(new(net.Dialer).DialContext(ctx, "tcp", c.String()))
	defer func() { _ = conn.Close() }()
	Eventually(c.visits).Should(Receive(Equal(conn.LocalAddr().String())), "the canary had another visitor")
}

// must returns the value of a call that must succeed.
func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

var _ = Describe("the operator's settings", func() {
	loopback := []string{"127.0.0.0/8", "::1/128"}
	local := egress.Config{AllowCIDRs: loopback}
	services := egress.Config{AllowCIDRs: []string{"10.96.0.0/12"}}
	denied := egress.Config{DenyCIDRs: []string{"93.184.216.0/24"}}
	nat64 := egress.Config{AllowCIDRs: []string{"64:ff9b::/96"}}
	own64 := egress.Config{NAT64: []string{"2001:db8:64::/96"}}

	DescribeTable("allow and deny hosts, ports and ranges by flag",
		func(ctx SpecContext, cfg egress.Config, raw, expect string) {
			names := suitetest.NewDNS()
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
			gate, held := newGate(cfg, names)

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
		names := suitetest.NewDNS()
		names.Set("localhost", "127.0.0.1")
		open := startCanary()
		gate := must(egress.New(egress.Config{AllowCIDRs: loopback}, egress.Deps{Resolver: names.Resolver()}))

		Expect(attempt(ctx, gate, fmt.Sprintf("http://localhost:%d/", open.Port))).To(Succeed())
		Eventually(open.visits).Should(Receive())
	})

	Describe("the search list of resolv.conf", func() {
		// The number of questions for an unknown name shows whether the search list was used: the
		// name itself takes two questions, one for each family.
		questions := func(ctx context.Context, cfg egress.Config) []int {
			GinkgoHelper()
			names := suitetest.NewDNS()
			gate, _ := newGate(cfg, names)
			Expect(attempt(ctx, gate, "http://nobody.example.com/")).NotTo(Succeed())
			dial := names.Questions()
			reason, _ := gate.Verdict(ctx, "team-a", "http://nobody.example.com/")
			Expect(reason).To(Equal("nobody.example.com does not resolve"))
			return []int{dial, names.Questions() - dial}
		}

		It("is ignored under the default policy", func(ctx SpecContext) {
			Expect(questions(ctx, egress.Config{})).To(HaveEach(2))
		})

		It("is not needed for localhost, which is in the hosts file", func(ctx SpecContext) {
			names := suitetest.NewDNS()
			gate, _ := newGate(egress.Config{AllowCIDRs: loopback}, names)
			_ = attempt(ctx, gate, "http://localhost:1/")
			Expect(verdict(ctx, gate, "http://localhost:1/")).To(Succeed())
			Expect(names.Questions()).To(BeZero())
		})

		It("is applied after the name itself if a range is allowed", func(ctx SpecContext) {
			Expect(questions(ctx, egress.Config{AllowCIDRs: loopback})).To(HaveEach(BeNumerically(">=", 4)))
		})
	})

	DescribeTable("are rejected if a flag is invalid",
		func(cfg egress.Config, text string) {
			_, err := egress.New(cfg, egress.Deps{})
			Expect(err).To(MatchError("set up egress policy: " + text))
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

var _ = It("The NetworkPolicy of the chart denies each range that the fetcher itself denies", func() {
	file := must(os.ReadFile("../../../deploy/chart/values.yaml"))
	var values struct {
		NetworkPolicy struct {
			PrivateCIDRs []netip.Prefix `yaml:"privateCIDRs"`
		} `yaml:"networkPolicy"`
	}
	Expect(yaml.Unmarshal(file, &values)).To(Succeed())
	private := values.NetworkPolicy.PrivateCIDRs
	Expect(private).NotTo(BeEmpty())

	ranges := slices.Concat(egress.ProviderPrefixes(), ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes,
		[]netip.Prefix{ssrf.IPv6NAT64Prefix})
	for _, closed := range ranges {
		Expect(slices.ContainsFunc(private, func(p netip.Prefix) bool {
			return p.Bits() <= closed.Bits() && p.Contains(closed.Addr())
		})).To(BeTrue(), "networkPolicy.privateCIDRs lacks %s", closed)
	}
})

const policyFile = `
policies:
- namespaces: [team-a, "build-*"]
  allow-cidr: [10.20.0.0/16]
- namespaces: [team-a]
  deny-cidr: [10.20.9.0/24]
  deny-host: ["*.evil.example"]
- namespaces: [locked]
  only-host: [data.example.com]
  allow-port: [9000]
- namespaces: [named]
  allow-host: [wiki]
`

var _ = Describe("policies of namespaces", func() {
	var path string

	write := func(content string) {
		GinkgoHelper()
		// Rename, as a mounted ConfigMap does, so that no reader sees a partial file.
		Expect(os.WriteFile(path+".new", []byte(content), 0o600)).To(Succeed())
		Expect(os.Rename(path+".new", path)).To(Succeed())
	}

	start := func(cfg egress.Config) *egress.Gate {
		GinkgoHelper()
		names := suitetest.NewDNS()
		names.SetOther(public)
		return must(egress.New(cfg, egress.Deps{File: path, Resolver: names.Resolver()}))
	}

	allows := func(gate *egress.Gate, namespace, raw string) bool {
		_, err := gate.Verdict(context.Background(), namespace, raw)
		return err == nil
	}

	BeforeEach(func() {
		path = filepath.Join(GinkgoT().TempDir(), "policy.yaml")
		write(policyFile)
	})

	It("add to the policy of the flags", func() {
		gate := start(egress.Config{
			DenyHosts: []string{"data.bad.example"}, AllowPorts: []int{9001},
			NAT64: []string{"2a00:1:1::/48"},
		})

		Expect(allows(gate, "named", "http://wiki/")).To(BeTrue())
		Expect(allows(gate, "other", "http://wiki/")).To(BeFalse())
		Expect(allows(gate, "other", "http://10.20.1.1/")).To(BeFalse())
		Expect(allows(gate, "team-a", "http://10.20.1.1/")).To(BeTrue())
		Expect(allows(gate, "build-7", "http://10.20.1.1/")).To(BeTrue())
		Expect(allows(gate, "build-7", "http://10.20.9.1/")).To(BeTrue())
		Expect(allows(gate, "team-a", "http://10.20.9.1/")).To(BeFalse())
		Expect(allows(gate, "team-a", "http://x.evil.example/")).To(BeFalse())
		Expect(allows(gate, "build-7", "http://x.evil.example/")).To(BeTrue())
		Expect(allows(gate, "locked", "http://data.example.com:9000/")).To(BeTrue())
		Expect(allows(gate, "locked", "http://data.example.com:9001/")).To(BeTrue())
		Expect(allows(gate, "locked", "http://www.example.com/")).To(BeFalse())
		for _, namespace := range []string{"team-a", "build-7", "locked", "other"} {
			Expect(allows(gate, namespace, "http://data.bad.example/")).To(BeFalse())
			Expect(allows(gate, namespace, "http://[2a00:1:1:a0b:0:100::]/")).To(BeFalse(), "10.11.0.1 behind NAT64")
		}
	})

	It("are shared by namespaces with the same entries", func() {
		gate := start(egress.Config{})

		Expect(gate.For("build-1")).To(BeIdenticalTo(gate.For("build-2")))
		Expect(gate.For("other")).To(BeIdenticalTo(gate.For("")))
		Expect(gate.For("team-a")).NotTo(BeIdenticalTo(gate.For("build-1")))
	})

	It("change with the file", func() {
		gate := start(egress.Config{})

		write("policies:\n- namespaces: [team-b]\n  allow-cidr: [10.20.0.0/16]\n")
		var reports []error
		gate.Poll(func(_ string, err error) { reports = append(reports, err) })

		Expect(reports).To(Equal([]error{nil}))
		Expect(allows(gate, "team-a", "http://10.20.1.1/")).To(BeFalse())
		Expect(allows(gate, "team-b", "http://10.20.1.1/")).To(BeTrue())
	})

	DescribeTable("are rejected if the file has",
		func(content, text string) {
			write(content)

			_, err := egress.New(egress.Config{}, egress.Deps{File: path})

			Expect(err).To(MatchError(HavePrefix("set up egress policy: read " + path + ": ")))
			Expect(err).To(MatchError(ContainSubstring(text)))
		},
		Entry("empty", "", `no list "policies"`),
		Entry("only comments", "# nothing\n", `no list "policies"`),
		Entry("another structure", "- allow-cidr: []\n", "cannot unmarshal"),
		Entry("no YAML", "policies: [", "did not find"),
		Entry("an unknown field", "policies:\n- namespaces: [a]\n  deny-cdir: [10.0.0.0/8]\n", "field deny-cdir not found"),
		Entry("a wrong range", "policies:\n- namespaces: [a]\n  deny-cidr: [10.0.0.0/99]\n",
			`policies[0]: deny-cidr "10.0.0.0/99": not an address range`),
		Entry("no namespaces", "policies:\n- deny-cidr: [10.0.0.0/8]\n", "policies[0] names no namespaces"),
		Entry("a wrong namespace", "policies:\n- namespaces: [\"a b\"]\n", `namespaces "a b": not a`),
		Entry("a second document", "policies: []\n---\npolicies: []\n", "more than one document"),
	)
})

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
		names *suitetest.DNS
		trap  canary
		raw   string
		cfg   egress.Config
	)

	BeforeEach(func() {
		names = suitetest.NewDNS()
		trap = startCanary()
		raw = fmt.Sprintf("http://data.example.com:%d/", trap.Port)
		// Only the address rule protects the canary.
		cfg = egress.Config{AllowPorts: []int{trap.Port}}
	})

	It("is checked again if its address changes after the dry run", func(ctx SpecContext) {
		names.Rebind("data.example.com", []string{public}, []string{"127.0.0.1"})
		gate := must(egress.New(cfg, egress.Deps{Resolver: names.Resolver()}))

		Expect(verdict(ctx, gate, raw)).To(Succeed())
		Expect(attempt(ctx, gate, raw)).To(MatchError(egress.ErrDenied))
		trap.expectNoVisitor(ctx)
	})

	It("leads only to the public ones of several addresses", func(ctx SpecContext) {
		names.Set("data.example.com", "127.0.0.1", public, "::1", "10.1.2.3")
		gate, held := newGate(cfg, names)

		err := attempt(ctx, gate, raw)

		Expect(err).To(Or(MatchError(errHeld), MatchError(egress.ErrUnreachable)))
		Expect(err).NotTo(MatchError(egress.ErrDenied))
		Expect(held.attempts()).To(ConsistOf(fmt.Sprintf("tcp4 %s:%d", public, trap.Port)))
		Expect(gate.Verdict(ctx, "team-a", raw)).
			To(Equal("1 of 4 addresses of data.example.com are permitted, the others are skipped"))
	})

	It("is left to a proxy only if all of its addresses are allowed", func(ctx SpecContext) {
		names.Set("data.example.com", public, "127.0.0.1")
		names.Set("www.example.com", public, "93.184.216.35")
		gate, _ := newGate(egress.Config{}, names)
		admit := func(raw string) error { return gate.For("team-a").Admit(ctx, must(url.Parse(raw))) }

		for raw, reason := range map[string]string{
			"http://www.example.com/": "all addresses of www.example.com are permitted",
			"http://" + public + "/":  "the address is permitted",
		} {
			Expect(admit(raw)).To(Succeed())
			Expect(gate.Verdict(ctx, "team-a", raw)).To(Equal(reason))
		}
		Expect(admit("http://data.example.com/")).To(Equal(&egress.DeniedError{Rule: egress.RuleAddress}))
		Expect(admit("http://10.0.0.1/")).To(Equal(&egress.DeniedError{Rule: egress.RuleAddress}))
		Expect(admit("http://nobody.example.com/")).To(BeAssignableToTypeOf(&net.DNSError{}))
	})

	DescribeTable("is checked at the dial, however it was parsed",
		func(ctx SpecContext, addr string, rule egress.Rule) {
			names.SetOther(public)
			gate, held := newGate(egress.Config{DenyHosts: []string{"*.bad.example"}}, names)

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
		gate, _ := newGate(egress.Config{}, names)
		Expect(gate.For("team-a").CheckURL(&url.URL{Scheme: "ftp", Host: "data.example.com"})).
			To(Equal(&egress.DeniedError{Rule: egress.RuleScheme}))
	})

	It("gets at most 16 dials", func(ctx SpecContext) {
		var many []string
		for i := range 30 {
			many = append(many, fmt.Sprintf("93.184.216.%d", i+1))
		}
		names.Set("data.example.com", many...)
		gate, held := newGate(egress.Config{}, names)

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
		gate, _ := newGate(egress.Config{}, names)
		names.Set("data.example.com", many(200)...)
		Expect(attempt(ctx, gate, "http://data.example.com/")).To(MatchError(egress.ErrDenied))
		names.Set("data.example.com", many(300)...)
		var unusable *net.DNSError
		Expect(errors.As(attempt(ctx, gate, "http://data.example.com/"), &unusable)).To(BeTrue())
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

	It("gives different errors if it is unknown and if it is denied", func(ctx SpecContext) {
		gate, _ := newGate(egress.Config{}, names)

		err := attempt(ctx, gate, "http://nobody.example.com/")

		Expect(err).To(BeAssignableToTypeOf(&net.OpError{}))
		Expect(err).NotTo(MatchError(egress.ErrDenied))
		Expect(verdict(ctx, gate, "http://nobody.example.com/")).To(BeAssignableToTypeOf(&net.DNSError{}))
	})

	It("behind a silent resolver fails after the dial timeout", func(ctx SpecContext) {
		silent := must(new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:0"))
		DeferCleanup(silent.Close)
		deadlines := make(chan time.Time, 64)
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
			return deadlined{conn, deadlines}, err
		}}
		gate := must(egress.New(egress.Config{}, egress.Deps{Resolver: resolver, DialTimeout: 50 * time.Millisecond}))

		start := time.Now()
		Expect(attempt(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(verdict(ctx, gate, "http://data.example.com/")).NotTo(Succeed())
		Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
		Eventually(deadlines).Should(Receive(BeTemporally("==", time.Unix(1, 0))), "the query is not aborted")
	})
})

var _ = It("the text of a denial names the rule, but no address, port or host", func() {
	texts := map[string]egress.Rule{}
	for _, rule := range egress.Rules() {
		text := (&egress.DeniedError{Rule: rule}).Error()
		Expect(text).To(MatchRegexp(`^(the|its?) [^\d]+(8192 characters)?$`))
		Expect(texts).NotTo(HaveKey(text), "it does not tell %s from others", rule)
		texts[text] = rule
	}
})

//go:embed testdata/urls.json
var vectorsJSON []byte

// vector is a URL with its verdict: the rule that denies it, or the network and the address that are dialled.
type vector struct {
	URL    string
	Expect string
	// Resolves has the addresses of its host, by default a public one.
	Resolves []string
}

func vectors() (all []vector) {
	if err := json.Unmarshal(vectorsJSON, &all); err != nil {
		panic(err)
	}
	const dialled, longest = "tcp4 " + public + ":80", weburl.MaxTargetBytes - len("http://data.example.com/")
	return append(all,
		vector{URL: "http://data.example.com/" + strings.Repeat("a", longest), Expect: dialled},
		vector{URL: "http://data.example.com/" + strings.Repeat("a", longest+1), Expect: "length"},
		vector{URL: "http://" + strings.Repeat(strings.Repeat("a0z9-", 13)[:63]+".", 4)[:252] + "z/", Expect: dialled},
		vector{URL: "http://" + strings.Repeat("abcdefg.", 31) + "example.com/", Expect: "host"},
		vector{URL: "http://" + strings.Repeat("a", 64) + ".example.com/", Expect: "host"},
	)
}

var _ = Describe("the default policy", func() {
	for _, v := range vectors() {
		title := fmt.Sprintf("%s for %.60q", v.Expect, v.URL)
		if v.Resolves != nil {
			title += fmt.Sprintf(" at %q", v.Resolves)
		}
		It("decides on "+title, func(ctx SpecContext) {
			names := suitetest.NewDNS()
			names.SetOther(public)
			if v.Resolves != nil {
				names.SetOther(v.Resolves...)
			}
			gate, held := newGate(egress.Config{}, names)

			err := attempt(ctx, gate, v.URL)

			if strings.HasPrefix(v.Expect, "tcp") {
				Expect(err).To(MatchError(errHeld))
				Expect(held.attempts()).To(ConsistOf(v.Expect))
				Expect(verdict(ctx, gate, v.URL)).To(Succeed())
				return
			}
			Expect(err).To(Equal(&egress.DeniedError{Rule: egress.Rule(v.Expect)}))
			Expect(held.attempts()).To(BeEmpty())
			Expect(verdict(ctx, gate, v.URL)).To(Equal(err))
		})
	}
})
