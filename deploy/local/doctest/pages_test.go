// Package doctest checks the documentation: that its links, commands, metrics and samples exist and are valid.
package doctest_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestDocumentation(t *testing.T) { suitetest.Run(t, "the documentation") }

// root is the root of the repository.
const root = "../../.."

var _ = It("The pages name only files, headings and symbols that exist", func() {
	Expect(Check(os.DirFS(root))).To(BeEmpty())
})

var _ = It("The check of the pages accepts what exists and reports the rest", func() {
	tree := fstest.MapFS{}
	for name, content := range map[string]string{
		"README.md": "# Top\n\n## What it does, and how\n\n## What it does, and how\n",
		"writer/apply.go": "package apply\n\ntype Client struct {\n\tName string\n}\n\n" +
			"func (c *Client) Patch() {}\n\nfunc New() {}\n\nconst limit = 1\n",
		"writer/made/.gitignore":     "*\n",
		"writer/decisions/0001-a.md": "`writer/old.go` [b](b.md)\n", // its links are checked, its code is not
		"writer/good.md": "# A `b` c\n[a](../README.md) [b](../writer) [c](.) [d](..) [there](https://example.com/a#b)\n" +
			"[how](../README.md#what-it-does-and-how) [how](../README.md#what-it-does-and-how-1) [here](#a-b-c)\n" +
			"<a id=\"S1\"></a> [here](#S1)\n\n```\n[no](nowhere.md)\n```\n\n" +
			"`writer/apply.go: New`, `apply.go: Client.Patch`, `apply.go: Client.Name`, `apply.go: limit`,\n" +
			"`writer/apply.go`, `/etc/nats.conf`, `namespace/name`, `writer/made/kubeconfig`\n",
		"writer/bad.md": "[top](../REDME.md)\n\n![top](top.png)\n\n| a |\n|---|\n| b [b](c.md) |\n\n" +
			"[how](../README.md#how)\n\n[how](#how)\n\n`writer/apply.go: Old`\n\n`writer/apply.go: Client.Put`\n\n" +
			"`writer/old.go: New`\n\n`writer/old.go`\n\n`writer/internal/judge`\n",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(content)}
	}
	Expect(Check(tree)).To(ConsistOf(
		"writer/decisions/0001-a.md:1: writer/decisions/b.md does not exist",
		"writer/bad.md:1: REDME.md does not exist", "writer/bad.md:3: writer/top.png does not exist",
		"writer/bad.md:7: writer/c.md does not exist", "writer/bad.md:9: README.md has no heading #how",
		"writer/bad.md:11: writer/bad.md has no heading #how", "writer/bad.md:13: writer/apply.go does not declare Old",
		"writer/bad.md:15: writer/apply.go does not declare Client.Put", "writer/bad.md:17: writer/old.go does not exist",
		"writer/bad.md:19: writer/old.go does not exist", "writer/bad.md:21: writer/internal/judge does not exist",
	))
})

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
			c.pages[name] = parsePage(string(content))
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

// page has the anchors, link targets and code spans of a Markdown file.
type page struct {
	anchors      map[string]bool
	links, codes []span
}

// span is a link target or inline code with its line.
type span struct {
	text string
	line int
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// idAttribute matches an anchor in HTML.
	idAttribute = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	// notInAnchor matches what GitHub leaves out of the anchor of a heading.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// parsePage reads a Markdown file.
func parsePage(source string) page {
	p := page{anchors: map[string]bool{}}
	lines := func(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }
	source = codeBlock.ReplaceAllStringFunc(source, lines)
	for _, title := range heading.FindAllStringSubmatch(source, -1) {
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title[1]), ""), " ", "-")
		for n, first := 1, anchor; p.anchors[anchor]; n++ {
			anchor = fmt.Sprint(first, "-", n)
		}
		p.anchors[anchor] = true
	}
	for _, id := range idAttribute.FindAllStringSubmatch(source, -1) {
		p.anchors[id[1]] = true
	}
	p.codes = spans(source, codeSpan)
	p.links = spans(codeSpan.ReplaceAllStringFunc(source, lines), linkTarget)
	return p
}

// spans returns the first group of each match.
func spans(source string, of *regexp.Regexp) (found []span) {
	for _, at := range of.FindAllStringSubmatchIndex(source, -1) {
		text := strings.ReplaceAll(source[at[2]:at[3]], "\n", " ")
		found = append(found, span{text, 1 + strings.Count(source[:at[0]], "\n")})
	}
	return found
}

// declares reports whether Go source declares all names, such as a type and its method. A name at the start of an
// indented line counts, because it may be a field or constant.
func declares(source []byte, names []string) bool {
	for _, name := range names {
		declaration := `(?m)^(?:func (?:\([^)]*\) )?|func \(\w+ \*?|type |const |var |\t)` + name + `\b`
		if !regexp.MustCompile(declaration).Match(source) {
			return false
		}
	}
	return true
}
