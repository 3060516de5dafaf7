// Command image-archive prints images of static programs as an archive for `docker load` and `ctr images
// import`. It needs no container engine. deploy/docker/Dockerfile builds the released images.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const usage = `usage: image-archive [--file PATH=FILE] PROGRAM:ENTRYPOINT=NAME[,NAME]...

Each image holds PROGRAM at the path ENTRYPOINT, and FILE at PATH.
`

// user and group of the process, as in the Dockerfile.
const user = "65532:65532"

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	file := flag.String("file", "", "`PATH=FILE` for every image")
	flag.Parse()
	if err := write(os.Stdout, *file, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "image-archive: %v\n", err)
		os.Exit(1)
	}
}

// write prints one archive with all images, for the architecture of this machine.
func write(w io.Writer, file string, args []string) error {
	images := map[name.Tag]v1.Image{}
	for _, arg := range args {
		source, names, named := strings.Cut(arg, "=")
		program, entrypoint, placed := strings.Cut(source, ":")
		if !named || !placed {
			return fmt.Errorf("%q is not PROGRAM:ENTRYPOINT=NAME", arg)
		}
		built, err := image(program, entrypoint, file)
		if err != nil {
			return fmt.Errorf("build image %s: %w", names, err)
		}
		for text := range strings.SplitSeq(names, ",") {
			tag, err := name.NewTag(text)
			if err != nil {
				return fmt.Errorf("name an image: %w", err)
			}
			images[tag] = built
		}
	}
	if len(images) == 0 {
		return errors.New("name at least one PROGRAM:ENTRYPOINT=NAME")
	}
	if err := tarball.MultiWrite(images, w); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// image returns an image with a program and, if file is PATH=FILE, that file.
func image(program, entrypoint, file string) (v1.Image, error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	err := add(archive, entrypoint, program, 0o755)
	if to, from, is := strings.Cut(file, "="); is {
		err = errors.Join(err, add(archive, to, from, 0o644))
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("create the layer: %w", err)
	}
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{entrypoint}, User: user, WorkingDir: "/"},
	})
	if err != nil {
		return nil, fmt.Errorf("create the configuration: %w", err)
	}
	return mutate.AppendLayers(base, layer)
}

func add(archive *tar.Writer, to, from string, mode int64) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// Paths in archives have no leading slash.
	header := &tar.Header{Name: strings.TrimPrefix(to, "/"), Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}
