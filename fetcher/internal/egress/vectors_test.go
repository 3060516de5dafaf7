package egress_test

import (
	_ "embed"
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

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
