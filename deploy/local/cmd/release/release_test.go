package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

func TestAnArchiveDependsOnContentOnly(t *testing.T) {
	g := gomega.NewWithT(t)
	r := &release{out: t.TempDir(), time: time.Unix(1_700_000_000, 0)}
	sum := func(name string, mode os.FileMode, changed time.Time) string {
		from := t.TempDir()
		for _, file := range []string{"b/two", "a/one"} {
			path := filepath.Join(from, file)
			g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(gomega.Succeed())
			g.Expect(os.WriteFile(path, []byte(file), mode)).To(gomega.Succeed())
			g.Expect(os.Chtimes(path, changed, changed)).To(gomega.Succeed())
		}
		g.Expect(r.archive(name, []file{{from, "root"}})).To(gomega.Succeed())
		digest, err := r.checksum(name)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		return digest
	}
	one := sum("one.tar.gz", 0o600, time.Now())
	g.Expect(sum("other.tar.gz", 0o644, time.Unix(1, 0))).To(gomega.Equal(one))
	g.Expect(sum("executable.tar.gz", 0o700, time.Now())).NotTo(gomega.Equal(one))
	back := t.TempDir()
	g.Expect(unpack(filepath.Join(r.out, "one.tar.gz"), back)).To(gomega.Succeed())
	g.Expect(os.ReadFile(filepath.Join(back, "root", "b", "two"))).To(gomega.BeEquivalentTo("b/two"))
}

func TestManifestsNameImagesByDigest(t *testing.T) {
	g := gomega.NewWithT(t)
	t.Chdir("../../../..")
	metadata := filepath.Join(t.TempDir(), "images.json")
	g.Expect(os.WriteFile(metadata, []byte(`{
	  "buildx.build.warnings": [],
	  "keeper": {"image.name": "ghcr.io/kv8s/curl-me-that/keeper:v1.2.3", "containerimage.digest": "sha256:def"},
	  "writer": {"image.name": "ghcr.io/kv8s/curl-me-that/writer:v1.2.3", "containerimage.digest": "sha256:abc"}
	}`), 0o600)).To(gomega.Succeed())
	digests, err := readDigests(metadata)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	r := &release{version: "v1.2.3", out: t.TempDir(), digests: digests}
	g.Expect(r.makeManifests()).To(gomega.Succeed())
	text, err := os.ReadFile(filepath.Join(r.out, "install.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(string(text)).To(gomega.And(
		gomega.ContainSubstring("image: ghcr.io/kv8s/curl-me-that/writer:v1.2.3@sha256:abc\n"),
		gomega.ContainSubstring("image: ghcr.io/kv8s/curl-me-that/watcher:v1.2.3\n"),
		gomega.Not(gomega.ContainSubstring(":dev")),
	))
	text, err = os.ReadFile(filepath.Join(r.out, "watchers.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(string(text)).To(gomega.And(
		gomega.ContainSubstring("image: ghcr.io/kv8s/curl-me-that/keeper:v1.2.3@sha256:def\n"),
		gomega.Not(gomega.ContainSubstring(":dev")),
	))
}

func TestAKeySignsTheChart(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("gpg, which signs, is not on this machine")
	}
	g := gomega.NewWithT(t)
	home, err := os.MkdirTemp("", "gpg-") //nolint:usetesting // gpg's agent listens here, and paths of sockets are short
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	t.Setenv("GNUPGHOME", home)
	gpg := func(args ...string) string {
		text, err := exec.CommandContext(t.Context(), "gpg", append([]string{"--batch", "--passphrase", ""}, args...)...).CombinedOutput()
		g.Expect(err).NotTo(gomega.HaveOccurred(), string(text))
		return string(text)
	}
	gpg("--quick-generate-key", "releases@example.com", "ed25519")
	chart := filepath.Join(t.TempDir(), "Chart.yaml")
	g.Expect(os.WriteFile(chart, []byte("name: curl-me-that\nversion: 1.2.3\n"), 0o600)).To(gomega.Succeed())

	r := &release{out: t.TempDir(), key: "releases@example.com"}
	g.Expect(r.archive("curl-me-that-1.2.3.tgz", []file{{chart, "curl-me-that/Chart.yaml"}})).To(gomega.Succeed())
	g.Expect(r.signChart(t.Context(), "curl-me-that-1.2.3.tgz", chart)).To(gomega.Succeed())
	sum, err := r.checksum("curl-me-that-1.2.3.tgz")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(gpg("--decrypt", filepath.Join(r.out, "curl-me-that-1.2.3.tgz.prov"))).To(gomega.And(
		gomega.ContainSubstring("name: curl-me-that\nversion: 1.2.3\n\n...\nfiles:\n  curl-me-that-1.2.3.tgz: sha256:"+sum+"\n"),
		gomega.ContainSubstring("Good signature"),
	))

	r.key = "somebody-else@example.com"
	g.Expect(r.signChart(t.Context(), "curl-me-that-1.2.3.tgz", chart)).
		To(gomega.MatchError(gomega.ContainSubstring(`--key: gpg cannot sign the chart as "somebody-else@example.com"`)))
}

func TestATreeWithChangesIsRefused(t *testing.T) {
	g := gomega.NewWithT(t)
	t.Chdir(t.TempDir())
	out := filepath.Join(t.TempDir(), "dist")
	g.Expect(exec.CommandContext(t.Context(), "git", "init", "--quiet").Run()).To(gomega.Succeed())
	g.Expect(os.WriteFile("new.go", nil, 0o600)).To(gomega.Succeed())
	g.Expect(run(t.Context(), []string{"--version", "v1.2.3", "--out", out})).
		To(gomega.MatchError(`there are changes that are not committed, the first: "?? new.go"; commit or stash them`))
	g.Expect(out).NotTo(gomega.BeADirectory())
}

func TestBadInputGetsASentence(t *testing.T) {
	g := gomega.NewWithT(t)
	g.Expect(run(t.Context(), []string{"--version", "1.2.3"})).To(gomega.MatchError(`--version: "1.2.3" is not a version such as v1.2.3`))
	g.Expect(run(t.Context(), []string{"--version", "v1.2.3", "--out", t.TempDir()})).To(gomega.MatchError(gomega.HaveSuffix("is there already: remove it")))
	empty := filepath.Join(t.TempDir(), "images.json")
	g.Expect(os.WriteFile(empty, []byte("{}"), 0o600)).To(gomega.Succeed())
	_, err := readDigests(empty)
	g.Expect(err).To(gomega.MatchError("--images: there is no digest in " + empty))
}
