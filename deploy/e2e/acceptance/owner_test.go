package acceptance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is kept until its owner removes it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		cm.EventuallyReports(ctx, "mydata", "KeyExists")
		cm.Put(ctx, "mydata", "theirs as before")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs as before"))
		Expect(page.Hits()).To(BeZero())
		Expect(cm.Writes(ctx)).To(Equal(1), "the status about the existing key")
		Expect(cm.Status(ctx, "mydata").Why().Message).
			To(HavePrefix("key mydata already exists and is not managed by curl-me-that"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
		cm.EventuallyReports(ctx, "mydata", "")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited or removed by hand is repaired each time, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "drift", "as asked", world.Holding("other", "theirs"))
		for i, change := range []func(){
			func() { cm.Put(ctx, "mydata", "changed by hand") },
			func() { cm.Put(ctx, "mydata", "once more") },
			func() { cm.Drop(ctx, "mydata") },
		} {
			change()
			cm.EventuallyHasData(ctx, "mydata", "as asked")
			w.EventuallyQuiet(ctx)
			Expect(cm.Reasons(ctx)).To(And(Not(BeEmpty()), HaveEach("Drifted")))
			Expect(cm.Writes(ctx)).To(Equal(2 + i))
		}
	})

	It("is pruned when its pair is removed, and other keys stay", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "pruned", world.Asking("a="+a.URL()+" b="+b.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")

		cm.Ask(ctx, "b="+b.URL())
		cm.EventuallyLacks(ctx, "a")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"b": "B", "other": "theirs"}))

		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "b")
		w.EventuallyQuiet(ctx)
		left := cm.Get(ctx)
		Expect(left.Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(left.Annotations).NotTo(HaveKey(annotation.StatusKey))
		Expect(b.Hits()).To(Equal(1))
	})
})

// Copies and backups of an object include its status annotation.
var _ = Describe("A copy of a ConfigMap with its status", func() {
	// copied adds a status for url from another cluster: an older object with a higher fence.
	copied := func(url, body string) world.Trait {
		sum := sha256.Sum256([]byte(body))
		return world.Annotated(annotation.StatusKey, status.Status{Keys: map[string]status.Entry{"mydata": {
			URL: url, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body)), FetchedAt: time.Now().Add(-time.Hour),
			Object: "another", Fence: status.Fence{Epoch: time.Now().AddDate(1, 0, 0).UnixMilli(), Seq: 1_000_000},
		}}}.String())
	}

	It("is filled and refreshed despite the higher fence of the other cluster", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/copied").Says("now")
		cm := w.Create(ctx, "copied", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "1s"),
			world.Holding("mydata", "then"), copied(page.URL(), "then"))
		cm.EventuallyHasData(ctx, "mydata", "now")
		page.Says("later")
		cm.EventuallyHasData(ctx, "mydata", "later")
		Expect(cm.Status(ctx, "mydata").Object).To(Equal(status.Mark(cm.Get(ctx).UID)))
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.HasEvents(ctx)
	})

	DescribeTable("is taken over by one write", func(ctx SpecContext, traits ...world.Trait) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/same").Says("same")
		cm := w.Create(ctx, "same", append(traits, world.Asking("mydata="+page.URL()), copied(page.URL(), "same"))...)
		Eventually(ctx, func() string { return cm.Status(ctx, "mydata").Object }).Should(Equal(status.Mark(cm.Get(ctx).UID)))
		cm.EventuallyReports(ctx, "mydata", "")
		cm.EventuallyHasData(ctx, "mydata", "same")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(1))
	}, Entry("with its value", world.Holding("mydata", "same")), Entry("without it"))

	It("keeps a value that a user set", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Asking("mydata="+page.URL()), world.Holding("mydata", "theirs"),
			copied(page.URL(), "ours, then"))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs"))
		cm.HasEvents(ctx, "KeyExists")
		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
	})
})

// These specs check the table in deploy/docs/gitops.md.
var _ = Describe("A ConfigMap in Git", func() {
	var w *world.World
	var url string
	BeforeEach(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{})
		url = w.Origin.Page("/hello").Says("fetched").URL()
	})
	// submit runs a kubectl command with the manifest, which contains data in flow style. It returns the error
	// output.
	submit := func(ctx context.Context, data, command string) (string, error) {
		GinkgoHelper()
		cmd := newTerminal(w).shell(ctx, "kubectl "+command+" --filename=- --output=json")
		cmd.Stdin = strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: git, annotations: {" +
			annotation.DefaultKey + ": 'page=" + url + "'}}\n" + data)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err == nil {
			object := &corev1.ConfigMap{}
			Expect(json.Unmarshal(out, object)).To(Succeed(), "%s", out)
			w.History.BySpec(object)
		}
		return stderr.String(), err
	}
	filled := func(ctx context.Context, command string) *world.ConfigMap {
		GinkgoHelper()
		suitetest.Must(submit(ctx, "", command))
		cm := w.Named("git")
		cm.EventuallyHasData(ctx, "page", "fetched")
		w.EventuallyQuiet(ctx)
		return cm
	}
	const client, server, forced = "apply", "apply --server-side", "apply --server-side --force-conflicts"

	It("with another value of a fetched key is a conflict for server-side apply", func(ctx SpecContext) {
		cm := filled(ctx, server)
		was := cm.Get(ctx).ResourceVersion
		stderr, err := submit(ctx, "data: {page: from Git}", server)
		Expect(err).To(HaveOccurred())
		Expect(stderr).To(ContainSubstring("conflict"))
		Expect(cm.Get(ctx).ResourceVersion).To(Equal(was))
	})
})

// certificate is that of an authority, in PEM.
var certificate = func() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}()

// goodBodies meet the rules of the recipes, by key.
var goodBodies = map[string]string{
	"ca.pem": certificate + certificate, "node-exporter.json": `{"panels":[1]}`, "etcd.yaml": "# comment\ngroups: []",
	"default.tmpl": `{{ define "__alertmanager" }}Alertmanager{{ end }}`, "cloudflare-v4": "192.0.2.0/24\n198.51.100.0/22",
	"cloudflare-v6": "2001:db8::/32\n", "github.json": `{"hooks":["192.0.2.0/24"]}`,
	"google.json": `{"keys":[{"kid":"a"}]}`,
	"drop.txt":    "; comment\n192.0.2.0/24 ; SBL1\n", "settings.yaml": "a: b",
}

// recipe reads a recipe and points its URLs to the origin, with the same paths. It returns the body of each
// key.
func recipe(w *world.World, file string) (object *corev1.ConfigMap, bodies map[string]string) {
	GinkgoHelper()
	text := suitetest.Must(os.ReadFile(file))
	object, bodies = &corev1.ConfigMap{}, map[string]string{}
	Expect(yaml.UnmarshalStrict(text, object)).To(Succeed(), file)
	grammar := suitetest.Must(annotation.New(annotation.Defaults()))
	request, err := grammar.Parse(object.Annotations)
	Expect(err).NotTo(HaveOccurred(), file)
	asks := ""
	for _, pair := range request.Pairs {
		address, err := url.Parse(pair.URL)
		Expect(err).NotTo(HaveOccurred(), file)
		bodies[pair.Key] = goodBodies[pair.Key]
		asks += pair.Key + "=" + w.Origin.Page(address.Path).Says(bodies[pair.Key]).URL() + "\n"
	}
	object.Namespace, object.Annotations[annotation.DefaultKey] = w.Namespace, asks
	return object, bodies
}

var _ = Describe("The recipes", func() {
	It("keep the RDS bundle when the URL responds with a login page or half a bundle", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		object, bodies := recipe(w, "../../samples/recipes/01-rds-ca.yaml")
		page := w.Origin.Page("/global/global-bundle.pem")
		cm := w.Create(ctx, object.Name, func(o *corev1.ConfigMap) { o.ObjectMeta = object.ObjectMeta })
		cm.EventuallyHasData(ctx, "ca.pem", bodies["ca.pem"])

		page.Says("<html>Sign in, token S3CR3T</html>")
		cm.Annotate(ctx, "x-kv8s.io/curl-now", "1")
		cm.EventuallyHasEvents(ctx, "ContentRejected")
		cm.EventuallyReports(ctx, "ca.pem", "ContentRejected")
		Expect(cm.Events(ctx, "ContentRejected")[0].Note).To(And(
			ContainSubstring("the response for ca.pem does not meet rule 1 of curl-expect, size(certs(body)) > 0"),
			ContainSubstring(": it has something other than certificates in PEM and blanks"),
			ContainSubstring("; key ca.pem keeps its last good value; next try at "), Not(ContainSubstring("S3CR3T"))))
		page.Says(certificate)
		cm.Annotate(ctx, "x-kv8s.io/curl-now", "2")
		Eventually(func() uint32 { return cm.Status(ctx, "ca.pem").Why().Rule }).WithContext(ctx).Should(BeEquivalentTo(2))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("ca.pem", bodies["ca.pem"]))

		page.Says(bodies["ca.pem"] + certificate)
		cm.Annotate(ctx, "x-kv8s.io/curl-now", "3")
		cm.EventuallyHasData(ctx, "ca.pem", bodies["ca.pem"]+certificate)
		cm.EventuallyHasEvents(ctx, "ContentRejected", "ContentRejected", "Recovered")
	})

	It("are accepted by the API server, and filled", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		files := suitetest.Must(filepath.Glob("../../samples/recipes/*.yaml"))
		Expect(len(files)).To(BeNumerically(">=", 10))
		for _, file := range files {
			object, bodies := recipe(w, file)
			Expect(object.Annotations).To(HaveKey("x-kv8s.io/curl-expect"), file)
			_, err := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Create(ctx, object,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
			Expect(err).NotTo(HaveOccurred(), file)
			cm := w.Create(ctx, object.Name, func(o *corev1.ConfigMap) { o.ObjectMeta = object.ObjectMeta })
			for key, body := range bodies {
				cm.EventuallyHasData(ctx, key, body)
			}
		}
	})
})

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

		word := map[string]string{
			"": "true", other: "not only certificates", bad: "not a valid certificate", no: "false", large: "too large",
		}
		want := map[string]string{}
		for key, bundle := range all {
			if word, known := word[bundle[1]]; known { // no rule sees a body that is too large
				want[key] = word
			}
		}
		Eventually(func() map[string]string {
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
			return verdicts
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Equal(want), "on a busy machine a rule may end at its limit")
	})
})
