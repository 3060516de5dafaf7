package docs

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is what a Markdown file claims.
type page struct {
	anchors map[string]bool
	links   []link
	codes   []code
}

// link leads to a file or a heading.
type link struct {
	destination string
	// text that is shown for it, without markup; isCode reports whether all of
	// it is inline code.
	text   string
	isCode bool
	line   int
}

// code is an inline code span.
type code struct {
	text string
	line int
}

// idAttribute finds the anchors that are set by hand.
var idAttribute = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)

// parse reads a Markdown file as GitHub renders it: with tables and task lists.
func parse(source []byte) page {
	p := page{anchors: map[string]bool{}}
	for _, id := range idAttribute.FindAllSubmatch(source, -1) {
		p.anchors[string(id[1])] = true
	}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the walker returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.addAnchor(plain(n, source))
		case *ast.Link:
			p.links = append(p.links, link{
				destination: string(n.Destination), text: plain(n, source), isCode: onlyCode(n), line: lineOf(n, source),
			})
		case *ast.Image:
			p.links = append(p.links, link{destination: string(n.Destination), line: lineOf(n, source)})
		case *ast.CodeSpan:
			p.codes = append(p.codes, code{text: plain(n, source), line: lineOf(n, source)})
		}
		return ast.WalkContinue, nil
	})
	return p
}

// addAnchor adds the anchor that GitHub gives a heading: a second one of the
// same name is numbered.
func (p *page) addAnchor(heading string) {
	base := anchor(heading)
	name := base
	for n := 1; p.anchors[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	p.anchors[name] = true
}

// anchor returns a heading in lower case, with hyphens for spaces and without
// punctuation.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// plain returns the text below a node, with line breaks as spaces.
func plain(n ast.Node, source []byte) string {
	out := &strings.Builder{}
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		leaf, ok := child.(*ast.Text)
		if !ok {
			out.WriteString(plain(child, source))
			continue
		}
		out.Write(leaf.Segment.Value(source))
		if leaf.SoftLineBreak() {
			out.WriteByte(' ')
		}
	}
	return strings.ReplaceAll(out.String(), "\n", " ")
}

func onlyCode(n ast.Node) bool {
	first := n.FirstChild()
	return first != nil && first.Kind() == ast.KindCodeSpan && first.NextSibling() == nil
}

// lineOf returns the line of an inline node: that of the first text in or
// behind it, or that of the block around it.
func lineOf(n ast.Node, source []byte) int {
	for child := n.FirstChild(); child != nil; child = child.FirstChild() {
		if leaf, ok := child.(*ast.Text); ok {
			return 1 + bytes.Count(source[:leaf.Segment.Start], []byte("\n"))
		}
	}
	for parent := n.Parent(); parent != nil; parent = parent.Parent() {
		if parent.Type() == ast.TypeBlock && parent.Lines() != nil && parent.Lines().Len() > 0 {
			return 1 + bytes.Count(source[:parent.Lines().At(0).Start], []byte("\n"))
		}
	}
	return 0
}
