package controlplane

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/versions"
)

const (
	// indexTimeout limits the request for the list of archives, so that an offline machine soon starts a build.
	indexTimeout = 3 * time.Second
	// fetchTimeout limits the download of an archive of 60 MB. A build does not take longer.
	fetchTimeout = 5 * time.Minute
)

// fetch downloads the newest archive of the pinned minor version. The client compares its
// checksum with the list.
func (p ProgramOptions) fetch(ctx context.Context, scratch string) error {
	p.display.show("control plane: looking for an archive of envtest")
	releases := &remote.HTTPClient{Log: logr.Discard(), IndexURL: p.Index}
	release, platform, err := newest(ctx, releases)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(scratch, "archive"))
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := releases.GetVersion(ctx, release, platform, io.MultiWriter(file, &counter{display: p.display})); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return extract(file, scratch)
}

func newest(ctx context.Context, releases *remote.HTTPClient) (versions.Concrete, versions.PlatformItem, error) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	all, err := releases.ListVersions(ctx)
	if err != nil {
		return versions.Concrete{}, versions.PlatformItem{}, err
	}
	pinned := version.MustParseSemantic(kubernetesVersion())
	for _, release := range all { // newest first
		if release.Version.Major != int(pinned.Major()) || release.Version.Minor != int(pinned.Minor()) {
			continue
		}
		for _, platform := range release.Platforms {
			if platform.OS == runtime.GOOS && platform.Arch == runtime.GOARCH {
				return release.Version, platform, nil
			}
		}
	}
	return versions.Concrete{}, versions.PlatformItem{},
		fmt.Errorf("none of %d.%d for %s/%s", pinned.Major(), pinned.Minor(), runtime.GOOS, runtime.GOARCH)
}

// extract writes the programs of an archive into dir.
func extract(archive io.Reader, dir string) error {
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Base(header.Name)
		if !slices.Contains(ProgramOptions{}.programs(), name) || header.Typeflag != tar.TypeReg {
			continue
		}
		//nolint:gosec // a program
		program, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.CopyN(program, files, header.Size)
		if err := errors.Join(err, program.Close()); err != nil {
			return err
		}
	}
}

// counter displays the number of written bytes.
type counter struct {
	display *progress
	bytes   int
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	c.display.show("control plane: downloading, %d MB", c.bytes>>20)
	return len(p), nil
}
