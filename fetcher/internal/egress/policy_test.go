package egress_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"code.dny.dev/ssrf"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

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
			names.SetOther(public)
			if v.Resolves != nil {
				names.SetOther(v.Resolves...)
			}
			gate, held := newGate(egress.Config{})

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

var _ = It("the text of a denial names the rule, but no address, port or host", func() {
	texts := map[string]egress.Rule{}
	for _, rule := range egress.Rules() {
		text := (&egress.DeniedError{Rule: rule}).Error()
		Expect(text).To(MatchRegexp(`^(the|its?) [^\d]+(8192 characters)?$`))
		Expect(texts).NotTo(HaveKey(text), "it does not tell %s from others", rule)
		texts[text] = rule
	}
})

var _ = It("The NetworkPolicy of the chart denies each range that the fetcher itself denies", func() {
	file := suitetest.Must(os.ReadFile("../../../deploy/chart/values.yaml"))
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
