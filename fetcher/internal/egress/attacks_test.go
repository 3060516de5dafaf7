package egress_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// Classes of URLs, in addition to the table of vectors.
var _ = Describe("the text of a URL", func() {
	DescribeTable("is denied without a lookup or a dial if it is hostile",
		func(ctx SpecContext, raw string, rule egress.Rule) {
			names := startDNS()
			names.SetOther(public)
			gate, held := newGate(egress.Config{}, names)

			err := attempt(ctx, gate, raw)

			Expect(err).To(MatchError(egress.ErrDenied))
			Expect(err).To(Equal(&egress.DeniedError{Rule: rule}))
			Expect(held.attempts()).To(BeEmpty())
			Expect(gate.Verdict(ctx, "team-a", raw).Err).To(Equal(err))
		},
		func(raw string, _ egress.Rule) string { return shorten(raw) },

		// Spellings of IPv4 that C libraries accept.
		Entry(nil, "http://127.0.1/", egress.RuleHost),
		Entry(nil, "http://0300.0250.0.1/", egress.RuleHost),
		Entry(nil, "http://0x7f.0.0.1/", egress.RuleHost),
		Entry(nil, "http://0X7F000001/", egress.RuleHost),
		Entry(nil, "http://127.0.0.0x1/", egress.RuleHost),
		Entry(nil, "http://017700000001/", egress.RuleHost),
		Entry(nil, "http://127.0.0.01/", egress.RuleHost),
		Entry(nil, "http://93.184.216.34./", egress.RuleHost),
		Entry(nil, "http://93.184.216.34.34/", egress.RuleHost),
		Entry(nil, "http://93.184.55330/", egress.RuleHost),
		Entry(nil, "http://256.256.256.256/", egress.RuleHost),
		Entry(nil, "http://0x/", egress.RuleHost),
		Entry(nil, "http://data.example.0x/", egress.RuleHost),
		Entry(nil, "http://1.2.3.4.5.0xa/", egress.RuleHost),

		// IPv6, and IPv4 hidden in it.
		Entry(nil, "http://[::]/", egress.RuleAddress),
		Entry(nil, "http://[::127.0.0.1]/", egress.RuleAddress),
		Entry(nil, "http://[::7f00:1]/", egress.RuleAddress),
		Entry(nil, "http://[::ffff:0:127.0.0.1]/", egress.RuleAddress),
		Entry(nil, "http://[::FFFF:7F00:1]/", egress.RuleAddress),
		Entry(nil, "http://[0000:0000:0000:0000:0000:ffff:0a00:0001]/", egress.RuleAddress),
		Entry(nil, "http://[64:ff9b:1::7f00:1]/", egress.RuleAddress),
		Entry(nil, "http://[2002:0a00:0001::1]/", egress.RuleAddress),
		Entry(nil, "http://[2001:0:0:0:0:0:80ff:fffe]/", egress.RuleAddress),
		Entry(nil, "http://[2606:4700::200:5efe:7f00:1]/", egress.RuleAddress),
		Entry(nil, "http://[2606:4700::5efe:127.0.0.1]/", egress.RuleAddress),
		Entry(nil, "http://[fe80::5efe:a9fe:a9fe]/", egress.RuleAddress),
		Entry(nil, "http://[fd00::1]/", egress.RuleAddress),
		Entry(nil, "http://[fe80::1]/", egress.RuleAddress),
		Entry(nil, "http://[ff02::1]/", egress.RuleAddress),
		Entry(nil, "http://[fd20:ce::254]/", egress.RuleAddress),
		Entry(nil, "http://[2001:20::1]/", egress.RuleAddress),
		Entry(nil, "http://[2620:4f:8000::1]/", egress.RuleAddress),
		Entry(nil, "http://[2606:4700:4700::1111%25eth0]/", egress.RuleHost),
		Entry(nil, "http://[2606:4700:4700::1111%eth0]/", egress.RuleSyntax),
		Entry(nil, "http://[::1/", egress.RuleSyntax),
		Entry(nil, "http://::1/", egress.RuleSyntax),
		Entry(nil, "http://[127.0.0.1]/", egress.RuleSyntax),
		Entry(nil, "http://[v1.fe80]/", egress.RuleSyntax),

		// Special ranges of IPv4.
		Entry(nil, "http://169.254.169.254/", egress.RuleAddress),
		Entry(nil, "http://192.0.0.192/", egress.RuleAddress),
		Entry(nil, "http://192.88.99.1/", egress.RuleAddress),
		Entry(nil, "http://198.18.0.1/", egress.RuleAddress),
		Entry(nil, "http://240.0.0.1/", egress.RuleAddress),
		Entry(nil, "http://192.168.0.1/", egress.RuleAddress),

		// Hosts.
		Entry(nil, "http://localhost/", egress.RuleName),
		Entry(nil, "http://LocalHost/", egress.RuleName),
		Entry(nil, "http://a.localhost/", egress.RuleName),
		Entry(nil, "http://A.B.LOCALHOST./", egress.RuleName),
		Entry(nil, "http://metadata.google.INTERNAL./", egress.RuleName),
		Entry(nil, "http://kubernetes.default.svc/", egress.RuleName),
		Entry(nil, "http://kubernetes.default.svc./", egress.RuleName),
		Entry(nil, "http://x.cluster.local/", egress.RuleName),
		Entry(nil, "http://router.home.arpa/", egress.RuleName),
		Entry(nil, "http://expyuzz4wqqyqhjn.onion/", egress.RuleName),
		Entry(nil, "http://com/", egress.RuleName),
		Entry(nil, "http://com./", egress.RuleName),
		Entry(nil, "http://data..example.com/", egress.RuleHost),
		Entry(nil, "http://data.example.com../", egress.RuleHost),
		Entry(nil, "http://.data.example.com/", egress.RuleHost),
		Entry(nil, "http://./", egress.RuleHost),
		Entry(nil, "http://-data.example.com/", egress.RuleHost),
		Entry(nil, "http://data-.example.com/", egress.RuleHost),
		Entry(nil, "http://*.example.com/", egress.RuleHost),
		Entry(nil, "http://data.example.com,127.0.0.1/", egress.RuleHost),
		Entry(nil, "http://data.example.com;127.0.0.1/", egress.RuleHost),
		Entry(nil, "http://"+strings.Repeat("a", 64)+".example.com/", egress.RuleHost),
		Entry(nil, "http://"+strings.Repeat("abcdefg.", 31)+"example.com/", egress.RuleHost),
		Entry(nil, "http://data%2eexample.com/", egress.RuleSyntax),
		Entry(nil, "http://%31%32%37.0.0.1/", egress.RuleSyntax),
		Entry(nil, "http://127.0.0.1%00.example.com/", egress.RuleSyntax),
		Entry(nil, "http://%e2%93%9bocalhost/", egress.RuleHost),
		Entry(nil, "http://data%E3%80%82example%E3%80%82com/", egress.RuleHost),

		// Characters.
		Entry(nil, "http://１２７.0.0.1/", egress.RuleSyntax),
		Entry(nil, "http://①②⑦.⓪.⓪.①/", egress.RuleSyntax),
		Entry(nil, "http://data.example.com\x00.evil.example/", egress.RuleSyntax),
		Entry(nil, "http://data.example.com/\r\nX-Injected: 1", egress.RuleSyntax),
		Entry(nil, "http://data.example.com/\tx", egress.RuleSyntax),
		Entry(nil, " http://data.example.com/", egress.RuleSyntax),
		Entry(nil, "http://data.example.com/ ", egress.RuleSyntax),
		Entry(nil, "http:\\\\data.example.com\\", egress.RuleSyntax),
		Entry(nil, "http://data.example.com\\@127.0.0.1/", egress.RuleSyntax),
		Entry(nil, "http://data.example.com/\x7f", egress.RuleSyntax),
		Entry(nil, "http://data.example.com/\u00a0", egress.RuleSyntax),
		Entry(nil, "http://data.example.com/"+strings.Repeat("a", weburl.MaxBytes-23), egress.RuleLength),

		Entry(nil, "http://data.example.com/a\\b", egress.RuleSyntax),

		// Userinfo.
		Entry(nil, "http://@data.example.com/", egress.RuleUserinfo),
		Entry(nil, "http://:@data.example.com/", egress.RuleUserinfo),
		Entry(nil, "http://data.example.com@127.0.0.1/", egress.RuleUserinfo),
		Entry(nil, "http://127.0.0.1@data.example.com/", egress.RuleUserinfo),
		Entry(nil, "http://data.example.com:80@127.0.0.1/", egress.RuleUserinfo),
		Entry(nil, "http://a@b@data.example.com/", egress.RuleUserinfo),

		// Schemes and shapes.
		Entry(nil, "file:///etc/passwd", egress.RuleScheme),
		Entry(nil, "HTTPX://data.example.com/", egress.RuleScheme),
		Entry(nil, "data:text/plain,hello", egress.RuleScheme),
		Entry(nil, "dict://data.example.com:11211/stat", egress.RuleScheme),
		Entry(nil, "ldap://data.example.com/", egress.RuleScheme),
		Entry(nil, "http:/data.example.com/", egress.RuleSyntax),
		Entry(nil, "http:///data.example.com/", egress.RuleSyntax),
		Entry(nil, "http://", egress.RuleSyntax),
		Entry(nil, "http://?q", egress.RuleSyntax),
		Entry(nil, "http://:80/", egress.RuleHost),
		Entry(nil, "/etc/passwd", egress.RuleSyntax),
		Entry(nil, "data.example.com", egress.RuleSyntax),
		Entry(nil, "http", egress.RuleSyntax),

		// Ports.
		Entry(nil, "http://data.example.com:6379/", egress.RulePort),
		Entry(nil, "http://93.184.216.34:22/", egress.RulePort),
		Entry(nil, "http://data.example.com:080/", egress.RulePort),
		Entry(nil, "http://data.example.com:65536/", egress.RulePort),
		Entry(nil, "http://data.example.com:65616/", egress.RulePort),
		Entry(nil, "http://data.example.com:4294967376/", egress.RulePort),
		Entry(nil, "http://data.example.com:80:80/", egress.RuleSyntax),
		Entry(nil, "http://data.example.com:http/", egress.RuleSyntax),
		Entry(nil, "http://data.example.com:+80/", egress.RuleSyntax),
		Entry(nil, "http://[2606:4700:4700::1111]:/", egress.RulePort),
	)

	DescribeTable("is permitted if it only looks odd",
		func(ctx SpecContext, raw, dialled string) {
			names := startDNS()
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
		Entry("a fragment", "http://data.example.com/#@127.0.0.1", "tcp4 93.184.216.34:80"),
		Entry("dots at the end of a path", "http://data.example.com/...", "tcp4 93.184.216.34:80"),
		Entry("the longest URL", "http://data.example.com/"+strings.Repeat("a", weburl.MaxBytes-24), "tcp4 93.184.216.34:80"),
	)
})

func shorten(raw string) string {
	if len(raw) > 60 {
		return raw[:60] + "…"
	}
	return raw
}
