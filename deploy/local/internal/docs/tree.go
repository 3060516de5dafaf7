package docs

import (
	"io/fs"
	"slices"
	"strings"
)

// Files returns the paths of all files of a repository, without those that git
// or the build keeps in folders of their own.
func Files(tree fs.FS) ([]string, error) {
	left := []string{".git", ".cache", "bin", "dist"}
	var files []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(left, name) && d.IsDir():
			return fs.SkipDir
		case slices.Contains(left, name): // a link to a folder somewhere else
		case !d.IsDir() && !strings.HasSuffix(name, "~"):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}
