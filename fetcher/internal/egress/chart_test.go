package egress_test

import (
	"net/netip"
	"os"
	"slices"

	"code.dny.dev/ssrf"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

var _ = Describe("The NetworkPolicy of the chart", func() {
	It("denies each range that the fetcher itself denies", func() {
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
})
