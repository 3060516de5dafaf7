package acceptance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// issue returns a certificate in DER that is valid for a time from an hour ago.
func issue(valid time.Duration, change func(*x509.Certificate)) []byte {
	GinkgoHelper()
	key := suitetest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	began := time.Now().Add(-time.Hour)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: began, NotAfter: began.Add(valid), BasicConstraintsValid: true, IsCA: true,
	}
	change(c)
	return suitetest.Must(x509.CreateCertificate(rand.Reader, c, c, key.Public(), key))
}

func inPEM(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

// The ends of sentences about refused bundles.
const (
	other = ": it has something other than certificates in PEM and blanks"
	bad   = ": a certificate in it is incomplete or invalid"
	no    = `duration("720h"))`
	large = ": the limit is 262,144 bytes"
)

// bundles returns bodies by key, with the end of the sentence about each that is refused.
func bundles() map[string][2]string {
	const year, begin = 365 * 24 * time.Hour, "-----BEGIN CERTIFICATE-----\n"
	as := func(*x509.Certificate) {}
	der := issue(year, as)
	ca := inPEM("CERTIFICATE", der)
	lines := strings.SplitAfter(ca, "\n")
	return map[string][2]string{
		"one":              {ca, ""},
		"without-newline":  {strings.TrimSpace(ca), ""},
		"crlf":             {strings.ReplaceAll(ca+ca, "\n", "\r\n"), ""},
		"blanks":           {"\n \t\n" + strings.ReplaceAll(ca, "-\n", "- \n") + "\n\n" + ca + "\n", ""},
		"hundred":          {strings.Repeat(ca, 100), ""},
		"half":             {ca + ca[:len(ca)/2], bad},
		"no-end":           {strings.Join(lines[:len(lines)-2], ""), bad},
		"two-begins":       {begin + ca, bad},
		"no-base64":        {strings.Replace(ca, "MII", "M!I", 1), bad},
		"trailing":         {inPEM("CERTIFICATE", append(slices.Clone(der), 0)), bad},
		"key":              {ca + inPEM("PRIVATE KEY", der), other},
		"label":            {inPEM("X509 CERTIFICATE", der), other},
		"comment":          {"Subject: a\n" + ca, other},
		"indented":         {strings.ReplaceAll(ca, "-----BEGIN", "  -----BEGIN"), other},
		"bom":              {"\ufeff" + ca, other},
		"html":             {"<html><pre>\n" + ca + "</pre></html>\n", other},
		"login":            {"<html>Sign in</html>", other},
		"der":              {string(der), other},
		"empty":            {"\n", no},
		"expired":          {ca + inPEM("CERTIFICATE", issue(time.Minute, as)), no},
		"soon":             {inPEM("CERTIFICATE", issue(29*24*time.Hour, as)), no},
		"leaf":             {inPEM("CERTIFICATE", issue(year, func(c *x509.Certificate) { c.IsCA = false })), no},
		"not-yet":          {inPEM("CERTIFICATE", issue(year, func(c *x509.Certificate) { c.NotBefore = c.NotAfter })), no},
		"too-large":        {strings.Repeat(ca, 800), large},
		"ten-thousand-cas": {strings.Repeat(ca, 10_000), "is larger than the limit of "},
	}
}

var _ = Describe("A rule about certificates", func() {
	It("accepts or refuses a bundle with a reason, in the pipeline and in curlctl check", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		all := bundles()
		asks, expect := "", ""
		for key, bundle := range all {
			asks += key + "=" + w.Origin.Page("/"+key).Says(bundle[0]).URL() + "\n"
			expect += key + `=size(certs(body)) > 0 && certs(body).all(c, c.isCA && c.notBefore < now && ` +
				`c.notAfter > now + duration("720h"))` + "\n"
		}
		cm := w.Create(ctx, "bundles", world.Asking(asks), world.Annotated("x-kv8s.io/curl-expect", expect))
		for key, bundle := range all {
			if bundle[1] == "" {
				cm.EventuallyHasDataWithin(ctx, time.Minute, key, bundle[0])
				continue
			}
			Eventually(func() string { return cm.Status(ctx, key).Why().Message }).WithContext(ctx).
				WithTimeout(time.Minute).Should(ContainSubstring(bundle[1]), key)
			Expect(cm.Get(ctx).Data).NotTo(HaveKey(key))
		}

		out, _ := exec.CommandContext(ctx, env.Program("curlctl"), "check", w.Namespace+"/bundles", "--fetch", "-o", "json",
			"--kubeconfig="+w.Cluster.Kubeconfig, process.AllowLoopback).Output() // exits with 7
		var checked struct {
			Items []struct{ Key, Verdict, Detail string }
		}
		Expect(json.Unmarshal(out, &checked)).To(Succeed(), string(out))
		verdicts := map[string]string{}
		for _, row := range checked.Items {
			if strings.HasPrefix(row.Detail, "curl-expect: ") {
				verdicts[row.Key] = row.Verdict
			}
		}
		for key, bundle := range all {
			want := map[string]string{
				"": "true", other: "not only certificates", bad: "not a valid certificate", no: "false", large: "too large",
			}
			Expect(verdicts[key]).To(Equal(want[bundle[1]]), key+" in curlctl check")
		}
	})
})
