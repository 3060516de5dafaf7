package egress_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

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
