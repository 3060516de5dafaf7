package docs_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	gmtext "github.com/yuin/goldmark/text"
)

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

// idAttribute matches an anchor in HTML.
var idAttribute = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)

// parse reads a Markdown file as GitHub renders it.
func parse(source []byte) page {
	p := page{anchors: map[string]bool{}}
	for _, id := range idAttribute.FindAllSubmatch(source, -1) {
		p.anchors[string(id[1])] = true
	}
	markdown := goldmark.New(
		goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	)
	root := markdown.Parser().Parse(gmtext.NewReader(source))
	line := 0
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the walker returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			line = lineAt(source, n.Lines().At(0).Start)
		}
		switch n := n.(type) {
		case *ast.Text:
			line = lineAt(source, n.Segment.Start)
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			p.anchors[fmt.Sprintf("%s", id)] = true
		case *ast.Link:
			p.links = append(p.links, span{string(n.Destination), line})
		case *ast.Image:
			p.links = append(p.links, span{string(n.Destination), line})
		case *ast.CodeSpan:
			p.codes = append(p.codes, span{plain(n, source), line})
		}
		return ast.WalkContinue, nil
	})
	return p
}

func lineAt(source []byte, offset int) int { return 1 + bytes.Count(source[:offset], []byte("\n")) }

// plain returns the text below a node.
func plain(n ast.Node, source []byte) string {
	out := &strings.Builder{}
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if leaf, ok := child.(*ast.Text); ok {
			out.Write(leaf.Segment.Value(source))
		} else {
			out.WriteString(plain(child, source))
		}
	}
	return strings.ReplaceAll(out.String(), "\n", " ")
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
