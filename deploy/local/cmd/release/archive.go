package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// file of an archive: where it is on this machine, and its name in there. A folder
// stands for all files below it.
type file struct {
	from, name string
}

// archive writes a .tar.gz that depends on the content of the files only, not on
// who made it, when and where.
func (r *release) archive(name string, files []file) (err error) {
	out, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	defer func() { err = errors.Join(err, archive.Close(), zipped.Close(), out.Close()) }()
	for _, f := range files {
		if err := filepath.WalkDir(f.from, func(from string, entry fs.DirEntry, err error) error { // in lexical order
			if err != nil || entry.IsDir() {
				return err
			}
			below, err := filepath.Rel(f.from, from)
			if err != nil {
				return err
			}
			return r.add(archive, from, path.Join(f.name, filepath.ToSlash(below)))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) add(archive *tar.Writer, from, name string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode().Perm()&0o100 != 0 {
		mode = 0o755
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: mode, ModTime: r.time, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(archive, source)
	return err
}

// unpack writes the files of a .tar.gz, which we trust, into a folder.
func unpack(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	archive := tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !filepath.IsLocal(header.Name):
			return fmt.Errorf("%s has a file outside of it: %s", from, header.Name)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		path := filepath.Join(to, header.Name) //nolint:gosec // it is local
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
}
