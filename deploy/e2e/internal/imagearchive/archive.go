// Package imagearchive writes images of static programs as an archive for `docker load`
// and `ctr images import`. It needs no container engine, for tests where there is none.
// deploy/docker/Dockerfile makes the released images. The format is that of `docker save`
// (github.com/moby/docker-image-spec, v1.2, "Combined Image JSON + Filesystem Changeset
// Format").
package imagearchive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
)

// user and group of the process, as in the Dockerfile.
const user = "65532:65532"

// Image is a program, and nothing else that runs.
type Image struct {
	// Names with tag: ghcr.io/kv8s/curl-me-that/fetcher:dev.
	Names []string
	// Program is the path on this machine, and Entrypoint that in the image.
	Program, Entrypoint string
	// Files has the files of this machine by their path in the image.
	Files map[string]string
}

// manifest is an element of manifest.json.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write writes images for this machine's architecture to w. One image at a time
// is held in memory.
func Write(w io.Writer, images []Image) error {
	archive := tar.NewWriter(w)
	manifests := make([]manifest, 0, len(images))
	for _, image := range images {
		m, err := image.write(archive)
		if err != nil {
			return fmt.Errorf("write image %s: %w", strings.Join(image.Names, ", "), err)
		}
		manifests = append(manifests, m)
	}
	index, err := json.Marshal(manifests)
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := add(archive, "manifest.json", 0o644, index); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

func (i Image) write(archive *tar.Writer) (manifest, error) {
	layer, err := i.layer()
	if err != nil {
		return manifest{}, err
	}
	sum := digest(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{i.Entrypoint}, "User": user, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum}},
	})
	if err != nil {
		return manifest{}, err
	}
	m := manifest{Config: digest(config) + ".json", RepoTags: i.Names, Layers: []string{sum + "/layer.tar"}}
	if err := add(archive, m.Layers[0], 0o644, layer); err != nil {
		return manifest{}, err
	}
	return m, add(archive, m.Config, 0o644, config)
}

// layer is the image's file system as an archive.
func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return nil, err
	}
	if err := add(archive, inside(i.Entrypoint), 0o755, program); err != nil {
		return nil, err
	}
	for to, from := range i.Files {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := add(archive, inside(to), 0o644, content); err != nil {
			return nil, err
		}
	}
	err = archive.Close()
	return layer.Bytes(), err
}

// inside is a path as archives have it: without the leading slash.
func inside(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func add(archive *tar.Writer, name string, mode int64, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{
		Name: name, Mode: mode, Size: int64(len(content)),
		Typeflag: tar.TypeReg,
	}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
