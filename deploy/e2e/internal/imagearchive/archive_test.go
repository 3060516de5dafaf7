package imagearchive_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/imagearchive"
)

// read returns the files of an archive.
func read(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if err == io.EOF { //nolint:errorlint // documented to be just that
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("the program"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := imagearchive.Write(&out, []imagearchive.Image{{
		Names: []string{"example.com/a:1", "example.com/a:2"}, Program: program, Entrypoint: "/app",
		Files: map[string]string{"/etc/ssl/certs/ca-certificates.crt": program},
	}})
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, out.Bytes())
	var manifests []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
	if len(manifests) != 1 || len(manifests[0].RepoTags) != 2 || len(manifests[0].Layers) != 1 {
		t.Fatalf("got manifest %s", files["manifest.json"])
	}
	var config struct {
		Config struct {
			Entrypoint []string
			User       string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[manifests[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := files[manifests[0].Layers[0]]
	sum := sha256.Sum256(layer)
	if want := "sha256:" + hex.EncodeToString(sum[:]); len(config.RootFS.DiffIDs) != 1 ||
		config.RootFS.DiffIDs[0] != want {
		t.Errorf("got layers %v, want %s", config.RootFS.DiffIDs, want)
	}
	if config.Config.User != "65532:65532" || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/app" {
		t.Errorf("got configuration %+v", config.Config)
	}
	inside := read(t, layer)
	for _, name := range []string{"app", "etc/ssl/certs/ca-certificates.crt"} {
		if string(inside[name]) != "the program" {
			t.Errorf("%s holds %q", name, inside[name])
		}
	}
}
