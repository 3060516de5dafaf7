package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	  "watcher": {"image.name": "ghcr.io/kv8s/curl-me-that/watcher:v1.2.3", "containerimage.digest": "sha256:1"},
	  "fetcher": {"image.name": "ghcr.io/kv8s/curl-me-that/fetcher:v1.2.3", "containerimage.digest": "sha256:2"},
	  "writer": {"image.name": "ghcr.io/kv8s/curl-me-that/writer:v1.2.3,example.com/writer", "containerimage.digest": "sha256:3"},
	  "keeper": {"image.name": "ghcr.io/kv8s/curl-me-that/keeper:v1.2.3", "containerimage.digest": "sha256:4"},
	  "setup": {"image.name": "ghcr.io/kv8s/curl-me-that/curlctl:v1.2.3", "containerimage.digest": "sha256:5"},
	  "nats": {"image.name": "nats:2.15.2", "containerimage.digest": "sha256:6"}
	}`), 0o600)).To(gomega.Succeed())
	digests, err := readDigests(metadata)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	r := &release{version: "v1.2.3", out: t.TempDir(), digests: digests}
	g.Expect(r.makeManifests()).To(gomega.Succeed())
	text, err := os.ReadFile(filepath.Join(r.out, "install.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(string(text)).To(gomega.And(
		gomega.ContainSubstring("image: ghcr.io/kv8s/curl-me-that/writer:v1.2.3@sha256:3\n"),
		gomega.ContainSubstring("image: nats:2.15.2@sha256:6\n"),
		gomega.Not(gomega.ContainSubstring(":dev")),
	))
	g.Expect(imagesIn(text)).To(gomega.HaveEach(gomega.ContainSubstring("@sha256:")))
	text, err = os.ReadFile(filepath.Join(r.out, "watchers.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(string(text)).To(gomega.And(
		gomega.ContainSubstring("image: ghcr.io/kv8s/curl-me-that/keeper:v1.2.3@sha256:4\n"),
		gomega.Not(gomega.ContainSubstring(":dev")),
	))

	delete(r.digests, "nats:2.15.2")
	g.Expect(r.makeManifests()).To(gomega.MatchError("--images: there is no digest of nats:2.15.2"))
	r.digests = nil
	g.Expect(r.makeManifests()).To(gomega.Succeed())
	text, err = os.ReadFile(filepath.Join(r.out, "install.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(imagesIn(text)).To(gomega.ContainElements("ghcr.io/kv8s/curl-me-that/writer:v1.2.3", "nats:2.15.2"))
}

func TestTheMetadataOfTheChartNamesAllThatItInstalls(t *testing.T) {
	g := gomega.NewWithT(t)
	t.Chdir("../../../..")
	var installed []string
	for _, name := range []string{"install.yaml", "watchers.yaml", "sidecars.yaml"} {
		text, err := os.ReadFile(filepath.Join(manifests, name))
		g.Expect(err).NotTo(gomega.HaveOccurred())
		installed = append(installed, imagesIn(text)...)
	}
	slices.Sort(installed)
	metadata, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(imagesIn(metadata)).To(gomega.ConsistOf(slices.Compact(installed)))
	definition, err := os.ReadFile(filepath.Join(chart, "files", "crds", "watchers.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	name := regexp.MustCompile(`(?m)^  name: (watchers\..+)$`).FindSubmatch(definition)
	g.Expect(name).NotTo(gomega.BeNil())
	g.Expect(string(metadata)).To(gomega.ContainSubstring("      name: " + string(name[1]) + "\n"))

	path := filepath.Join(t.TempDir(), "Chart.yaml")
	g.Expect(os.WriteFile(path, metadata, 0o600)).To(gomega.Succeed())
	g.Expect((&release{version: "v1.2.3"}).completeMetadata(t.Context(), path)).To(gomega.Succeed())
	complete, err := os.ReadFile(path)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(imagesIn(complete)).To(gomega.ContainElements("ghcr.io/kv8s/curl-me-that/keeper:v1.2.3", "nats:2.15.2"))
	g.Expect(string(complete)).NotTo(gomega.ContainSubstring("signKey: "))
}

// imagesIn returns the images that a manifest names.
func imagesIn(text []byte) []string {
	var images []string
	for _, found := range regexp.MustCompile(`(?m)image: (\S+)$`).FindAllSubmatch(text, -1) {
		images = append(images, string(found[1]))
	}
	return images
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
	g.Expect(os.WriteFile(chart, []byte("annotations:\n  a: b\nname: curl-me-that\nversion: 1.2.3\n"), 0o600)).To(gomega.Succeed())

	r := &release{version: "v1.2.3", out: t.TempDir(), key: "releases@example.com"}
	g.Expect(r.completeMetadata(t.Context(), chart)).To(gomega.Succeed())
	g.Expect(gpg("--show-keys", filepath.Join(r.out, "signing-key.asc"))).To(gomega.ContainSubstring("releases@example.com"))
	fingerprint := strings.TrimSpace(strings.Split(gpg("--list-keys"), "\n")[3])
	g.Expect(os.ReadFile(chart)).To(gomega.BeEquivalentTo("annotations:\n  artifacthub.io/signKey: |\n    fingerprint: " + fingerprint +
		"\n    url: https://github.com/kv8s/curl-me-that/releases/download/v1.2.3/signing-key.asc\n  a: b\nname: curl-me-that\nversion: 1.2.3\n"))
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

func TestTheProgramsOfArchivesAndImagesAreThoseOfTheMakefile(t *testing.T) {
	read := func(name, pattern string) string {
		text, err := os.ReadFile("../../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(regexp.MustCompile(pattern).FindString(string(text)), "\\\n", "")
	}
	commands := strings.Fields(read("Makefile", `(?m)^COMMANDS := (.*\\\n)*.*`))[2:]
	image := read("deploy/docker/Dockerfile", `(?s)case "\$SERVICE".*?\*\)`)
	for _, command := range commands {
		if name := path.Base(command); !regexp.MustCompile(`[ |]` + name + `[|)]`).MatchString(image) {
			t.Errorf("the Dockerfile lacks %s", name)
		}
	}
	for _, program := range programs() {
		if !slices.Contains(commands, program) {
			t.Errorf("make build lacks %s", program)
		}
	}
}
