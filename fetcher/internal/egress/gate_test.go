package egress_test

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

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
		names.SetOther(public)
		return suitetest.Must(egress.New(cfg, egress.Deps{File: path, Resolver: names.Resolver()}))
	}

	allows := func(gate *egress.Gate, namespace, raw string) bool {
		_, err := gate.Preview(context.Background(), namespace, raw)
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

			Expect(egress.New(egress.Config{}, egress.Deps{File: path})).Error().
				To(And(MatchError(HavePrefix("set up egress policy: read "+path+": ")), MatchError(ContainSubstring(text))))
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
