package curlctl_test

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A manifest", func() {
	It("is checked, and its URLs are fetched on demand", func(ctx SpecContext) {
		site := newOrigin()
		check := checkFile(ctx, `
apiVersion: v1
kind: ConfigMap
metadata:
  name: one
  annotations: { x-kv8s.io/curl-me-that: "a=`+site.URL+`/a mine=`+site.URL+`/b", x-kv8s.io/curl-refresh: 10m }
data: { mine: kept }
---
apiVersion: v1
kind: Secret
metadata: { name: other }
`)
		r := check()
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(MatchRegexp(`default/one +a +would be fetched every 10m`))
		Expect(r.out).To(MatchRegexp(`default/one +mine +KeyExists`))
		Expect(site.gets.Load()).To(BeZero())
		Expect(check("--fetch").out).To(ContainSubstring("BadStatus"))
		Expect(flat(check("--fetch").out)).To(And(
			MatchRegexp(`a sent GET http://\S+/a; Accept: \*/\*; .*User-Agent: curl-me-that/`),
			MatchRegexp(`a received 50\d; .*Content-Length: `)))
		site.up.Store(true)
		Expect(check("--fetch").out).To(MatchRegexp(`a +fetched +10 bytes, sha256`))
		Expect(runAs(ctx, "curlctl", time.Now, "check").code).To(Equal(2))
		Expect(runAs(ctx, "curlctl", time.Now, "check", "-f", "/nonexistent").code).To(Equal(1))
	})

	It("is checked if it is a list, as kubectl get prints", func(ctx SpecContext) {
		r := checkFile(ctx, `{apiVersion: v1, kind: List, items: [
			{apiVersion: v1, kind: ConfigMap, metadata: {name: one, annotations:
				{x-kv8s.io/curl-me-that: 'a=http://127.0.0.1/'}}},
			{apiVersion: v1, kind: ConfigMap, metadata: {name: two, annotations: {x-kv8s.io/curl-suspend: true}}}]}`)()
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(And(MatchRegexp(`default/one +a +would be fetched`), MatchRegexp(`document 1 +- +InvalidManifest`)))
	})

	It("is checked in all files, in folders and on standard input, with the worst exit code", func(ctx SpecContext) {
		manifest := func(name, pairs string) string {
			return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name +
				", annotations: {x-kv8s.io/curl-me-that: '" + pairs + "'}}}"
		}
		dir := GinkgoT().TempDir()
		file := func(name, text string) string {
			path := filepath.Join(dir, name)
			Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
			return path
		}
		bad := file("bad.yaml", manifest("bad", "a=ftp://127.0.0.1/"))
		good := file("good.yml", manifest("good", "a=http://127.0.0.1/"))
		file("notes.txt", "not: [yaml")
		check := func(args ...string) result {
			return runAs(ctx, "curlctl", time.Now, append([]string{"check", "--allow-cidr=127.0.0.0/8"}, args...)...)
		}
		for _, args := range [][]string{{"-f", bad, "-f", good}, {"-f", good + "," + bad}, {"-f", dir}} {
			r := check(args...)
			Expect(r.code).To(Equal(7), r.err)
			Expect(r.out).To(And(ContainSubstring("default/bad"), ContainSubstring("default/good")))
		}
		Expect(check("-f", good).code).To(BeZero())
		named := file("named.yaml", manifest("named", "a=https://no-such-name.invalid.test-of-curlctl.example/"))
		Expect(check("-f", named).code).To(Equal(7))
		Expect(check("-f", named, "--allow-host=no-such-name.invalid.test-of-curlctl.example", "--offline").code).To(BeZero())
		Expect(check("-f", file("local.yaml", manifest("local", "a=http://localhost/")), "--offline").code).To(Equal(7))
		Expect(check("-f", good, "-f", filepath.Join(dir, "missing")).code).To(Equal(1))
	})

	It("has each rule and selection evaluated on the fetched body", func(ctx SpecContext) {
		site := newOrigin()
		check := checkFile(ctx, `
apiVersion: v1
kind: ConfigMap
metadata:
  name: one
  annotations:
    x-kv8s.io/curl-me-that: "a=`+site.URL+`/a b=`+site.URL+`/b"
    x-kv8s.io/curl-expect: |
      a=body.startsWith("body of")
      a=size(body) * 2 > heldSize
      b=body.endsWith("/a")
      b=size(json.rules) > 0
      b=body
    x-kv8s.io/curl-select: a=body + "!"
---
apiVersion: watch.x-kv8s.io/v1alpha1
kind: Watcher
metadata: { name: two }
spec: { sources: [{ key: c, url: "`+site.URL+`/c", expect: [{ rule: body == "body of /c" }] }] }
`)
		Expect(check().out).NotTo(ContainSubstring("curl-expect"), "without --fetch")
		Expect(check("--fetch").out).NotTo(ContainSubstring("curl-expect"), "without a body")
		site.up.Store(true)
		r := check("--fetch")
		Expect(r.code).To(Equal(7))
		for _, row := range []string{
			`one a fetched 10 bytes, sha256 \w+ `,
			`one a true curl-expect: body.startsWith\("body of"\) `,
			`one a true curl-expect: size\(body\) \* 2 > heldSize `,
			`one a 11 bytes curl-select: body \+ "!" `,
			`one b ContentRejected 10 bytes, sha256 \w+ `,
			`one b false curl-expect: body.endsWith\("/a"\) `,
			`one b not JSON curl-expect: size\(json.rules\) > 0 `,
			`one b not applicable curl-expect: body `,
			`two-config c true curl-expect: body == "body of /c"$`,
		} {
			Expect(flat(r.out)).To(MatchRegexp("default/" + row))
		}
		Expect(r.out).NotTo(ContainSubstring("body of /b"), "the body")
	})

	It("with a Watcher is checked like its ConfigMap", func(ctx SpecContext) {
		check := checkFile(ctx, `
apiVersion: watch.x-kv8s.io/v1alpha1
kind: Watcher
metadata: { name: rules, namespace: team-a }
spec:
  interval: 1h
  configData: { LEVEL: warn }
  sources:
  - { key: in, url: "http://127.0.0.1/a" }
  - { key: out, url: "http://10.0.0.1/b" }
---
apiVersion: watch.x-kv8s.io/v1alpha1
kind: Watcher
metadata: { name: static }
spec: { target: { name: mine }, configData: { LEVEL: warn } }
---
apiVersion: other.example.com/v1
kind: Watcher
metadata: { name: foreign }
---
apiVersion: watch.x-kv8s.io/v1alpha1
kind: Watcher
metadata: { name: mistyped }
spec: { configData: { x: yes } }
`)
		r := check()
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(MatchRegexp(`team-a/rules-config +in +would be fetched every 1h`))
		Expect(r.out).To(MatchRegexp(`team-a/rules-config +out +AddressDenied`))
		Expect(r.out).To(MatchRegexp(`default/mine +- +ignored +it has no annotation`))
		Expect(r.out).NotTo(ContainSubstring("foreign"))
		Expect(flat(r.out)).To(ContainSubstring("manifest.yaml, document 4 - InvalidManifest " +
			"spec.configData has a bool instead of a string (put quotes around it)"))
	})
})
