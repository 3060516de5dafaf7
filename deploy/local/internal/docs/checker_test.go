// Package docs_test checks the pages: files, headings, Go symbols and commands that they mention must exist.
package docs_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	// fileAndSymbol matches inline code such as `writer/run.go: Run`.
	fileAndSymbol = regexp.MustCompile(`^([\w./-]+\.go): (\w+(?:\.\w+)?)$`)
	// filePath matches inline code such as `writer/run.go`.
	filePath = regexp.MustCompile(`^([\w.-]+)(?:/[\w.-]+)+/?$`)
	// decision matches a decision record. Its inline code may contain names that no longer exist.
	decision = regexp.MustCompile(`(?:^|/)decisions/\d{4}-[^/]+\.md$`)
)

// Paths lists all files and folders of a repository, except git's own and build results.
func Paths(tree fs.FS) ([]string, error) {
	skipped := []string{".git", ".cache", "bin", "dist"}
	var paths []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(skipped, name) {
			return fs.SkipDir
		}
		paths = append(paths, name)
		return nil
	})
	return paths, err
}

// Check returns the problems of the Markdown of a repository, as FILE:LINE: TEXT. Links are
// relative to their page; inline code may also be relative to the root of the tree.
func Check(tree fs.FS) ([]string, error) {
	paths, err := Paths(tree)
	if err != nil {
		return nil, err
	}
	c := checker{tree: tree, exists: map[string]bool{}, pages: map[string]page{}}
	for _, name := range paths {
		c.exists[name] = true
		if path.Ext(name) == ".md" {
			content, err := fs.ReadFile(tree, name)
			if err != nil {
				return nil, err
			}
			c.pages[name] = parse(content)
		}
	}
	for name, p := range c.pages {
		for _, l := range p.links {
			c.checkLink(name, l)
		}
		for _, code := range p.codes {
			if decision.MatchString(name) {
				break
			}
			if err := c.checkCode(name, code); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(c.problems)
	return c.problems, nil
}

type checker struct {
	tree     fs.FS
	exists   map[string]bool
	pages    map[string]page
	problems []string
}

func (c *checker) report(file string, line int, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf("%s:%d: ", file, line)+fmt.Sprintf(format, args...))
}

// checkLink checks one link. It skips links to other sites.
func (c *checker) checkLink(file string, l span) {
	to, err := url.Parse(l.text)
	if err != nil {
		c.report(file, l.line, "cannot parse link %q", l.text)
		return
	}
	if to.Scheme != "" || to.Host != "" {
		return
	}
	target := file
	if to.Path != "" {
		target = path.Join(path.Dir(file), to.Path)
	}
	if !c.exists[target] {
		c.report(file, l.line, "%s does not exist", target)
		return
	}
	if p, isPage := c.pages[target]; isPage && to.Fragment != "" && !p.anchors[to.Fragment] {
		c.report(file, l.line, "%s has no heading #%s", target, to.Fragment)
	}
}

// checkCode checks inline code that names a file or a symbol.
func (c *checker) checkCode(file string, code span) error {
	if m := fileAndSymbol.FindStringSubmatch(code.text); m != nil {
		name, found := c.find(file, m[1])
		if !found {
			c.report(file, code.line, "%s does not exist", m[1])
			return nil
		}
		source, err := fs.ReadFile(c.tree, name)
		if err == nil && !declares(source, strings.Split(m[2], ".")) {
			c.report(file, code.line, "%s does not declare %s", name, m[2])
		}
		return err
	}
	if m := filePath.FindStringSubmatch(code.text); m != nil {
		_, found := c.find(file, code.text)
		_, ours := c.find(file, m[1]) // other paths are outside of the repository
		_, generated := c.find(file, path.Join(path.Dir(code.text), ".gitignore"))
		if ours && !found && !generated {
			c.report(file, code.line, "%s does not exist", code.text)
		}
	}
	return nil
}

// find returns a file whose name is relative to the root or to a page.
func (c *checker) find(page, name string) (string, bool) {
	for _, candidate := range []string{path.Clean(name), path.Join(path.Dir(page), name)} {
		if c.exists[candidate] {
			return candidate, true
		}
	}
	return "", false
}
