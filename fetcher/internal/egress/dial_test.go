package egress_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
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

	DescribeTable("never leads to a private address",
		func(ctx SpecContext, addrs ...string) {
			names.Set("data.example.com", addrs...)
			gate := must(egress.New(cfg, egress.Deps{Resolver: names.Resolver()}))

			err := attempt(ctx, gate, raw)

			Expect(err).To(Equal(&egress.DeniedError{Rule: egress.RuleAddress}))
			trap.expectNoVisitor(ctx)
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

	It("is checked again if its address changes after the dry run", func(ctx SpecContext) {
		names.Rebind("data.example.com", []string{public}, []string{"127.0.0.1"})
		gate := must(egress.New(cfg, egress.Deps{Resolver: names.Resolver()}))

		Expect(gate.Verdict(ctx, "team-a", raw).Allowed).To(BeTrue())
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
		verdict := gate.Verdict(ctx, "team-a", raw)
		Expect(verdict.Allowed).To(BeTrue())
		Expect(verdict.Reason).To(Equal("1 of 4 addresses of data.example.com are permitted, the others are skipped"))
		denied := &egress.DeniedError{Rule: egress.RuleAddress}
		Expect(verdict.Addresses).To(ConsistOf(
			egress.AddressVerdict{Addr: netip.MustParseAddr("127.0.0.1"), Err: denied},
			egress.AddressVerdict{Addr: netip.MustParseAddr(public)},
			egress.AddressVerdict{Addr: netip.MustParseAddr("::1"), Err: denied},
			egress.AddressVerdict{Addr: netip.MustParseAddr("10.1.2.3"), Err: denied},
		))
	})

	It("is left to a proxy only if all of its addresses are allowed", func(ctx SpecContext) {
		names.Set("data.example.com", public, "127.0.0.1")
		names.Set("www.example.com", public, "93.184.216.35")
		gate, _ := newGate(egress.Config{}, names)
		admit := func(raw string) error { return gate.For("team-a").Admit(ctx, must(url.Parse(raw))) }
		verdict := func(raw string) egress.Verdict { return gate.Verdict(ctx, "team-a", raw) }

		Expect(admit("http://www.example.com/")).To(Succeed())
		Expect(verdict("http://www.example.com/").Reason).To(Equal("all addresses of www.example.com are permitted"))
		Expect(admit("http://" + public + "/")).To(Succeed())
		Expect(verdict("http://" + public + "/").Addresses).
			To(ConsistOf(egress.AddressVerdict{Addr: netip.MustParseAddr(public)}))
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
		Expect(gate.Verdict(ctx, "team-a", "http://nobody.example.com/").Err).To(BeAssignableToTypeOf(&net.DNSError{}))
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
		Expect(gate.Verdict(ctx, "team-a", "http://data.example.com/").Allowed).To(BeFalse())
		Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
		Eventually(deadlines).Should(Receive(BeTemporally("==", time.Unix(1, 0))), "the query is not aborted")
	})
})

var _ = Describe("the text of a denial", func() {
	It("names the rule, but no address, port or host", func() {
		texts := map[string]egress.Rule{}
		for _, rule := range egress.Rules() {
			text := (&egress.DeniedError{Rule: rule}).Error()
			Expect(text).To(MatchRegexp(`^(the|its?) [^\d]+(8192 characters)?$`))
			Expect(texts).NotTo(HaveKey(text), "it does not tell %s from others", rule)
			texts[text] = rule
		}
	})
})

//go:embed testdata/urls.json
var vectorsJSON []byte

type vector struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Expect   string `json:"expect"`
	Resolves string `json:"resolves"`
}

func vectors() (all []vector) {
	if err := json.Unmarshal(vectorsJSON, &all); err != nil {
		panic(err)
	}
	return all
}

// full expands the values that the table abbreviates with "...".
func (v vector) full() string {
	head, shortened := strings.CutSuffix(v.URL, "...")
	if !shortened {
		return v.URL
	}
	letter := head[len(head)-1:]
	if strings.Count(head, "/") > 2 {
		return head + strings.Repeat(letter, weburl.MaxTargetBytes)
	}
	return head + strings.Repeat(letter, 64) + ".example.com/"
}

// address is the address that the name in the vector resolves to.
func (v vector) address() string {
	_, at, found := strings.Cut(v.Resolves, " ")
	if !found {
		return public
	}
	return must(netip.ParseAddrPort(at)).Addr().String()
}

var _ = Describe("the default policy", func() {
	for _, v := range vectors() {
		It("decides to "+v.Expect+" "+v.ID+" "+v.URL, func(ctx SpecContext) {
			names := suitetest.NewDNS()
			names.SetOther(public)
			if u, err := url.Parse(v.full()); err == nil && u.Hostname() != "" {
				names.SetOther(v.address())
			}
			gate, held := newGate(egress.Config{}, names)

			err := attempt(ctx, gate, v.full())
			verdict := gate.Verdict(ctx, "team-a", v.full())

			if v.Expect == "allow" {
				Expect(err).To(MatchError(errHeld))
				Expect(held.attempts()).NotTo(BeEmpty())
				Expect(verdict.Allowed).To(BeTrue(), verdict.Reason)
				return
			}
			Expect(err).To(MatchError(egress.ErrDenied))
			Expect(held.attempts()).To(BeEmpty())
			Expect(verdict.Allowed).To(BeFalse())
			Expect(verdict.Err).To(MatchError(egress.ErrDenied))
			Expect(verdict.Reason).NotTo(BeEmpty())
		})
	}
})

// Classes of URLs, in addition to the table of vectors.
var _ = Describe("the text of a URL", func() {
	all := func(rule egress.Rule, urls ...string) (entries []TableEntry) {
		for _, raw := range urls {
			entries = append(entries, Entry(nil, raw, rule))
		}
		return entries
	}

	DescribeTable("is denied without a lookup or a dial if it is hostile",
		func(ctx SpecContext, raw string, rule egress.Rule) {
			names := suitetest.NewDNS()
			names.SetOther(public)
			gate, held := newGate(egress.Config{}, names)

			err := attempt(ctx, gate, raw)

			Expect(err).To(MatchError(egress.ErrDenied))
			Expect(err).To(Equal(&egress.DeniedError{Rule: rule}))
			Expect(held.attempts()).To(BeEmpty())
			Expect(gate.Verdict(ctx, "team-a", raw).Err).To(Equal(err))
		},
		func(raw string, _ egress.Rule) string { return fmt.Sprintf("%.60s", raw) },

		// Spellings of IPv4 that C libraries accept.
		all(egress.RuleHost, "http://127.0.1/", "http://0300.0250.0.1/", "http://0x7f.0.0.1/", "http://0X7F000001/",
			"http://127.0.0.0x1/", "http://017700000001/", "http://127.0.0.01/", "http://93.184.216.34./",
			"http://93.184.216.34.34/", "http://93.184.55330/", "http://256.256.256.256/", "http://0x/",
			"http://data.example.0x/", "http://1.2.3.4.5.0xa/"),
		// IPv6, and IPv4 hidden in it.
		all(egress.RuleAddress, "http://[::]/", "http://[::127.0.0.1]/", "http://[::7f00:1]/",
			"http://[::ffff:0:127.0.0.1]/", "http://[::FFFF:7F00:1]/",
			"http://[0000:0000:0000:0000:0000:ffff:0a00:0001]/", "http://[64:ff9b:1::7f00:1]/",
			"http://[2002:0a00:0001::1]/", "http://[2001:0:0:0:0:0:80ff:fffe]/",
			"http://[2606:4700::200:5efe:7f00:1]/", "http://[2606:4700::5efe:127.0.0.1]/",
			"http://[fe80::5efe:a9fe:a9fe]/", "http://[fd00::1]/", "http://[fe80::1]/", "http://[ff02::1]/",
			"http://[fd20:ce::254]/", "http://[2001:20::1]/", "http://[2620:4f:8000::1]/"),
		all(egress.RuleHost, "http://[2606:4700:4700::1111%25eth0]/"),
		all(egress.RuleSyntax, "http://[2606:4700:4700::1111%eth0]/", "http://[::1/", "http://::1/",
			"http://[127.0.0.1]/", "http://[v1.fe80]/"),
		// Special ranges of IPv4.
		all(egress.RuleAddress, "http://169.254.169.254/", "http://192.0.0.192/", "http://192.88.99.1/",
			"http://198.18.0.1/", "http://240.0.0.1/", "http://192.168.0.1/"),
		// Hosts.
		all(egress.RuleName, "http://localhost/", "http://LocalHost/", "http://a.localhost/",
			"http://A.B.LOCALHOST./", "http://metadata.google.INTERNAL./", "http://kubernetes.default.svc/",
			"http://kubernetes.default.svc./", "http://x.cluster.local/", "http://router.home.arpa/",
			"http://expyuzz4wqqyqhjn.onion/", "http://com/", "http://com./"),
		all(egress.RuleHost, "http://data..example.com/", "http://data.example.com../", "http://.data.example.com/",
			"http://./", "http://-data.example.com/", "http://data-.example.com/", "http://*.example.com/",
			"http://data.example.com,127.0.0.1/", "http://data.example.com;127.0.0.1/",
			"http://"+strings.Repeat("a", 64)+".example.com/",
			"http://"+strings.Repeat("abcdefg.", 31)+"example.com/", "http://%e2%93%9bocalhost/",
			"http://data%E3%80%82example%E3%80%82com/"),
		all(egress.RuleSyntax, "http://data%2eexample.com/", "http://%31%32%37.0.0.1/",
			"http://127.0.0.1%00.example.com/"),
		// Characters.
		all(egress.RuleSyntax, "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/",
			"http://data.example.com\x00.evil.example/", "http://data.example.com/\r\nX-Injected: 1",
			"http://data.example.com/\tx", " http://data.example.com/", "http://data.example.com/ ",
			"http:\\\\data.example.com\\", "http://data.example.com\\@127.0.0.1/", "http://data.example.com/\x7f",
			"http://data.example.com/\u00a0"),
		all(egress.RuleLength, "http://data.example.com/"+strings.Repeat("a", weburl.MaxTargetBytes-23)),
		// Userinfo.
		all(egress.RuleUserinfo, "http://@data.example.com/", "http://:@data.example.com/",
			"http://data.example.com@127.0.0.1/", "http://127.0.0.1@data.example.com/",
			"http://data.example.com:80@127.0.0.1/", "http://a@b@data.example.com/"),
		// Schemes and shapes.
		all(egress.RuleScheme, "file:///etc/passwd", "HTTPX://data.example.com/", "data:text/plain,hello",
			"dict://data.example.com:11211/stat", "ldap://data.example.com/"),
		all(egress.RuleSyntax, "http:/data.example.com/", "http:///data.example.com/", "http://", "http://?q",
			"/etc/passwd", "data.example.com", "http"),
		all(egress.RuleHost, "http://:80/"),
		// Ports.
		all(egress.RulePort, "http://data.example.com:6379/", "http://93.184.216.34:22/",
			"http://data.example.com:080/", "http://data.example.com:65536/", "http://data.example.com:65616/",
			"http://data.example.com:4294967376/", "http://[2606:4700:4700::1111]:/"),
		all(egress.RuleSyntax, "http://data.example.com:80:80/", "http://data.example.com:http/",
			"http://data.example.com:+80/"),
	)

	DescribeTable("is permitted if it only looks odd",
		func(ctx SpecContext, raw, dialled string) {
			names := suitetest.NewDNS()
			names.SetOther(public)
			gate, held := newGate(egress.Config{}, names)

			Expect(attempt(ctx, gate, raw)).To(MatchError(errHeld))
			Expect(held.attempts()).To(ConsistOf(dialled))
		},
		Entry("the other ports", "https://data.example.com:8443/", "tcp4 93.184.216.34:8443"),
		Entry("an IPv4 address inside an IPv6 one", "http://[::ffff:93.184.216.34]/", "tcp4 93.184.216.34:80"),
		Entry("a long spelling of IPv6", "https://[2606:4700:4700:0:0:0:0:1111]:8443/", "tcp6 [2606:4700:4700::1111]:8443"),
		Entry("an interface of 00-01-5E-FE, which is not ISATAP", "http://[2606:4700::1:5efe:101:101]/",
			"tcp6 [2606:4700::1:5efe:101:101]:80"),
		Entry("an interface of 01-00-5E-FE", "http://[2606:4700::100:5efe:101:101]/",
			"tcp6 [2606:4700::100:5efe:101:101]:80"),
		Entry("an interface of 00-00-5F-FE", "http://[2606:4700::5ffe:101:101]/", "tcp6 [2606:4700::5ffe:101:101]:80"),
		Entry("an interface of 00-00-5E-FF", "http://[2606:4700::5eff:101:101]/", "tcp6 [2606:4700::5eff:101:101]:80"),
		Entry("the longest name", "http://"+strings.Repeat(strings.Repeat("a0z9-", 13)[:63]+".", 4)[:252]+"z/",
			"tcp4 93.184.216.34:80"),
		Entry("a name that ends in letters of hexadecimal digits", "http://data.example.de/", "tcp4 93.184.216.34:80"),
		Entry("a name that ends in 0x and more", "http://data.example.0xyz/", "tcp4 93.184.216.34:80"),
		Entry("the last character of ASCII", "http://data.example.com/~user", "tcp4 93.184.216.34:80"),
		Entry("an upper-case scheme", "HTTP://data.example.com/", "tcp4 93.184.216.34:80"),
		Entry("a name that begins with digits", "http://10.0.0.1.nip.example/", "tcp4 93.184.216.34:80"),
		Entry("a name that only contains a reserved word", "http://internal.local.example/", "tcp4 93.184.216.34:80"),
		Entry("userinfo in the path", "http://data.example.com/@user:pw@x", "tcp4 93.184.216.34:80"),
		Entry("a URL in the query", "http://data.example.com/?u=http://127.0.0.1/", "tcp4 93.184.216.34:80"),
		Entry("a backslash in the path", `http://data.example.com/\127.0.0.1`, "tcp4 93.184.216.34:80"),
		Entry("a lone percent sign", "http://data.example.com/100%?%", "tcp4 93.184.216.34:80"),
		Entry("a fragment", "http://data.example.com/#@127.0.0.1", "tcp4 93.184.216.34:80"),
		Entry("dots at the end of a path", "http://data.example.com/...", "tcp4 93.184.216.34:80"),
		Entry("the longest URL", "http://data.example.com/"+strings.Repeat("a", weburl.MaxTargetBytes-24),
			"tcp4 93.184.216.34:80"),
	)
})
