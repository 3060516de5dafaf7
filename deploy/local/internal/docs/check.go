package docs

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
	// fileAndSymbol is code such as `writer/run.go: Run`.
	fileAndSymbol = regexp.MustCompile(`^([\w./-]+\.go): (\w+(?:\.\w+)?)$`)
	// filePath is code such as `writer/run.go`. It counts when its first folder
	// exists: others are paths somewhere else. What has no folder may be anything.
	filePath = regexp.MustCompile(`^([\w.-]+)(?:/[\w.-]+)+/?$`)
	// record is a decision record. It describes what was, so only its links must
	// lead somewhere.
	record = regexp.MustCompile(`(?:^|/)decisions/\d{4}-[^/]+\.md$`)
	// packageAndSymbol is code such as `pipeline.Key.Want` or `apply.New()`.
	packageAndSymbol = regexp.MustCompile(`^([a-z]\w*)\.([A-Z]\w*(?:\.\w+)?)(?:\(\))?$`)
)

// Check returns what is wrong with the links, files, symbols and spec titles
// that the Markdown among files names. Links are relative to their page; files
// in inline code may also be relative to the root of the tree. A link to a
// _test.go file has the title of a spec in it as its text.
func Check(tree fs.FS, files []string) ([]Problem, error) {
	c := checker{exists: map[string]bool{}, pages: map[string]page{}}
	for _, name := range files {
		c.exists[name] = true
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			c.exists[folder] = true
		}
		if path.Ext(name) == ".md" {
			content, err := fs.ReadFile(tree, name)
			if err != nil {
				return nil, err
			}
			c.pages[name] = parse(content)
		}
	}
	var err error
	if c.source, err = readSource(tree, files); err != nil {
		return nil, err
	}
	for name, p := range c.pages {
		for _, l := range p.links {
			c.link(name, l)
		}
		for _, code := range p.codes {
			if !record.MatchString(name) {
				c.code(name, code)
			}
		}
	}
	slices.SortFunc(c.problems, func(a, b Problem) int {
		if order := strings.Compare(a.File, b.File); order != 0 {
			return order
		}
		return a.Line - b.Line
	})
	return c.problems, nil
}

type checker struct {
	exists   map[string]bool
	pages    map[string]page
	source   source
	problems []Problem
}

func (c *checker) report(file string, line int, format string, args ...any) {
	c.problems = append(c.problems, Problem{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// link checks one link; those to other sites are left out.
func (c *checker) link(file string, l link) {
	to, err := url.Parse(l.destination)
	if err != nil {
		c.report(file, l.line, "link %q cannot be parsed", l.destination)
		return
	}
	if to.Scheme != "" || to.Host != "" {
		return
	}
	target := file
	if to.Path != "" {
		target = path.Join(path.Dir(file), to.Path)
	}
	if target != "." && !c.exists[target] {
		c.report(file, l.line, "link leads to %s, which does not exist", target)
		return
	}
	if p, isPage := c.pages[target]; isPage && to.Fragment != "" && !p.anchors[to.Fragment] {
		c.report(file, l.line, "link leads to #%s, which is no heading of %s", to.Fragment, target)
	}
	if titles, isSpec := c.source.titles[target]; isSpec && !l.isCode && !titles[l.text] {
		c.report(file, l.line, "%s has no spec %q", target, l.text)
	}
}

// code checks inline code that names a file or a symbol.
func (c *checker) code(file string, code code) {
	if m := fileAndSymbol.FindStringSubmatch(code.text); m != nil {
		name, found := c.find(file, m[1])
		switch {
		case !found:
			c.report(file, code.line, "file %s does not exist", m[1])
		case !c.source.files[name][m[2]]:
			c.report(file, code.line, "%s does not declare %s", name, m[2])
		}
		return
	}
	if m := filePath.FindStringSubmatch(code.text); m != nil {
		_, found := c.find(file, code.text)
		_, ours := c.find(file, m[1])
		_, made := c.find(file, path.Join(path.Dir(code.text), ".gitignore")) // a folder for what is made at run time
		if ours && !found && !made {
			c.report(file, code.line, "file %s does not exist", code.text)
		}
		return
	}
	if m := packageAndSymbol.FindStringSubmatch(code.text); m != nil {
		if declared, ours := c.source.packages[m[1]]; ours && !declared[m[2]] {
			c.report(file, code.line, "package %s does not declare %s", m[1], m[2])
		}
	}
}

// find returns a file that is named relative to the root or to a page.
func (c *checker) find(page, name string) (string, bool) {
	for _, candidate := range []string{path.Clean(name), path.Join(path.Dir(page), name)} {
		if c.exists[candidate] {
			return candidate, true
		}
	}
	return "", false
}
