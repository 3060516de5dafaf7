package engine

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// BenchmarkPass measures what rules add to a fetch of 10 kB. It also prints the ratio to the digest of
// the body, which each fetch takes; see deploy/docs/rules.md.
func BenchmarkPass(b *testing.B) {
	one := `{"ip_prefix": "3.4.12.4/32", "region": "eu-west-1", "service": "AMAZON", "network_border_group": "eu-west-1"},`
	body := []byte(`{"version":3,"rules":[` + strings.TrimSuffix(strings.Repeat(one, 90), ",") + `]}`)
	e := &Engine{rules: new(rule.Evaluator)}
	for name, rules := range map[string][]string{
		"without rules": nil, "size of a list": {"size(json.rules) > 0"}, "version": {"json.version >= 3"},
		"start of a body": {`body.startsWith("{")`}, "size": {"size(body) * 2 > heldSize"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			t := &trigger{want: &v1.Want{Expect: rules}, past: new(v1.Due)}
			fastest, digest := time.Hour, time.Hour // other programs use the machine, too
			for b.Loop() {
				began := time.Now()
				if e.pass(b.Context(), t, get.Response{Body: body}).response == nil {
					b.Fatal("refused")
				}
				passed := time.Now()
				sha256.Sum256(body)
				fastest, digest = min(fastest, passed.Sub(began)), min(digest, time.Since(passed))
			}
			b.ReportMetric(float64(fastest.Nanoseconds()), "min-ns/op")
			b.ReportMetric(float64(fastest)/float64(digest), "of-digest")
		})
	}
}
