package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/local/internal/gobuild"
)

const (
	repository = "github.com/kv8s/curl-me-that"
	plugin     = "kubectl-curl_me_that"
	chart      = "deploy/chart"
	manifests  = "deploy/kubernetes"
)

// release is what is made.
type release struct {
	version   string // with v
	out       string
	platforms []string
	// helm is its program.
	helm string
	// time is that of the commit, which all files in archives have.
	time time.Time
	// digests of the images by name with tag; empty: images have none.
	digests map[string]string
	// key of gpg that signs the chart; may be empty.
	key string
}

// programs are those of the archives.
func programs() []string {
	return []string{
		"./watcher/cmd/watcher", "./watcher/cmd/keeper", "./fetcher/cmd/fetcher", "./writer/cmd/writer",
		"./deploy/local/cmd/curl-me-that", "./deploy/curlctl/cmd/curlctl",
	}
}

func (r *release) make(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // for everyone
		return err
	}
	var plugins []pluginArchive
	for _, platform := range r.platforms {
		fmt.Fprintln(os.Stderr, "building for", platform)
		archive, err := r.makePlatform(ctx, platform)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		plugins = append(plugins, archive)
	}
	for _, step := range []func() error{
		func() error { return r.makeChart(ctx) },
		r.makeManifests,
		func() error { return r.makeKrew(plugins) },
		r.makeChecksums,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makePlatform builds all programs for one platform, into an archive of all and one
// of the plugin.
func (r *release) makePlatform(ctx context.Context, platform string) (pluginArchive, error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return pluginArchive{}, fmt.Errorf("--platforms: %q is not one such as linux/amd64", platform)
	}
	bin, err := os.MkdirTemp("", "release-")
	if err != nil {
		return pluginArchive{}, err
	}
	defer os.RemoveAll(bin)
	if err := r.build(ctx, bin, goos, goarch); err != nil {
		return pluginArchive{}, err
	}
	suffix := "-" + r.version + "-" + goos + "-" + goarch
	folder := "curl-me-that" + suffix
	all := []file{{"LICENSE", folder + "/LICENSE"}, {"README.md", folder + "/README.md"}, {"deploy/samples", folder + "/deploy/samples"}}
	for _, program := range programs() {
		name := filepath.Base(program)
		all = append(all, file{filepath.Join(bin, name), folder + "/bin/" + name})
	}
	if err := r.archive(folder+".tar.gz", all); err != nil {
		return pluginArchive{}, err
	}
	if err := r.makeSBOM(folder+".cdx.json", bin); err != nil {
		return pluginArchive{}, err
	}
	name := "curlctl" + suffix + ".tar.gz"
	return pluginArchive{name: name, goos: goos, goarch: goarch}, r.archive(name, []file{
		{"LICENSE", "LICENSE"}, {filepath.Join(bin, "curlctl"), plugin},
	})
}

// build compiles as the Makefile does.
func (r *release) build(ctx context.Context, bin, goos, goarch string) error {
	args := append([]string{
		"build", "-trimpath", "-buildvcs=false", gobuild.NoDWARF, "-o", bin + "/",
		"-ldflags", "-s -w -X " + repository + "/proto/service.Version=" + r.version,
	}, programs()...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = gobuild.Environ("GOFLAGS=", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}

// makeChart packages the chart by helm, but with the time of the commit.
func (r *release) makeChart(ctx context.Context) error {
	packed, err := os.MkdirTemp("", "release-chart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(packed)
	number := strings.TrimPrefix(r.version, "v")
	cmd := exec.CommandContext(ctx, r.helm, "package", chart, "--version", number, "--app-version", r.version, "--destination", packed)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm package: %w: %s", err, text)
	}
	name := "curl-me-that-" + number + ".tgz"
	unpacked := filepath.Join(packed, "unpacked")
	if err := unpack(filepath.Join(packed, name), unpacked); err != nil {
		return err
	}
	metadata := filepath.Join(unpacked, "curl-me-that", "Chart.yaml")
	if err := r.completeMetadata(ctx, metadata); err != nil {
		return err
	}
	if err := r.archive(name, []file{{unpacked, "."}}); err != nil {
		return err
	}
	return r.signChart(ctx, name, metadata)
}

// completeMetadata names in the chart's metadata, which is at path, the images of this
// version, and the key that signs it.
func (r *release) completeMetadata(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if text, err = r.nameImages(text); err != nil {
		return err
	}
	if text, err = r.nameKey(ctx, text); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // for everyone
}

// image matches one in a manifest.
var image = regexp.MustCompile(`image: [\w./-]+:[\w.-]+`)

// nameImages names the images of this version in the place of those of development. Where
// digests are known, each image has one, that of NATS, too.
func (r *release) nameImages(text []byte) ([]byte, error) {
	var missing error
	text = image.ReplaceAllFunc(text, func(found []byte) []byte {
		named := string(found)
		if of, dev := strings.CutSuffix(named, ":dev"); dev {
			named = of + ":" + r.version
		}
		if len(r.digests) == 0 {
			return []byte(named)
		}
		name := strings.TrimPrefix(named, "image: ")
		if r.digests[name] == "" {
			missing = fmt.Errorf("--images: there is no digest of %s", name)
		}
		return []byte(named + "@" + r.digests[name])
	})
	return text, missing
}

// makeManifests names the images of this version, by digest where that is known.
func (r *release) makeManifests() error {
	for _, name := range []string{"install.yaml", "watchers.yaml", "sidecars.yaml"} {
		text, err := os.ReadFile(filepath.Join(manifests, name))
		if err != nil {
			return err
		}
		if text, err = r.nameImages(text); err != nil {
			return err
		}
		if err := r.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// makeChecksums lists the digests of all files, except provenance, which is a signature
// and so another one each time.
func (r *release) makeChecksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".prov" {
			continue
		}
		sum, err := r.checksum(f.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, f.Name())
	}
	return r.write("SHA256SUMS", list.Bytes())
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644) //nolint:gosec // for everyone
}

func (r *release) checksum(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// committed returns an error while there are changes in the tree, of which a release
// of the commit would have some.
func committed(ctx context.Context) error {
	changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("ask git for changes: %w", err)
	}
	if len(changes) > 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(string(changes)), "\n")
		return fmt.Errorf("there are changes that are not committed, the first: %q; commit or stash them", first)
	}
	return nil
}

// commitTime is when the commit was made that is checked out.
func commitTime(ctx context.Context) (time.Time, error) {
	text, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask git for the time of the commit: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// readDigests reads the metadata of a bake: by target, the names of an image and the
// digest of its index.
func readDigests(path string) (map[string]string, error) {
	if path == "" {
		return map[string]string{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--images: %w", err)
	}
	var targets map[string]json.RawMessage
	if err := json.Unmarshal(text, &targets); err != nil {
		return nil, fmt.Errorf("--images: %s: %w", path, err)
	}
	digests := map[string]string{}
	for _, target := range targets {
		var image struct {
			Names  string `json:"image.name"`
			Digest string `json:"containerimage.digest"`
		}
		if json.Unmarshal(target, &image) != nil || image.Digest == "" {
			continue // beside the targets there are warnings of the build
		}
		for name := range strings.SplitSeq(image.Names, ",") {
			digests[name] = image.Digest
		}
	}
	if len(digests) == 0 {
		return nil, fmt.Errorf("--images: there is no digest in %s", path)
	}
	return digests, nil
}
