package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// retired is a word that the repository no longer uses, and where it still may.
type retired struct {
	word *regexp.Regexp
	// instead is what it is called now.
	instead string
	// identifiers reports whether comments and texts may use the word; source,
	// whether pages may.
	identifiers, source bool
	// except are texts around the word that mean something else.
	except []*regexp.Regexp
	// files are patterns of paths, or folders, that may use the word.
	files []string
}

// Words returns where files use a word of a list: Go files in an identifier, a
// comment or a string, specs in a title, schemas in a comment, and pages in their
// prose. What is generated, and what records the past, is left out. A line of the
// list is
//
//	WORD -> INSTEAD
//
// where WORD is a regular expression for a whole word, upper or lower case. The
// words of an identifier such as nextAttempt are next and attempt. Lines below it that
// begin with a space restrict it: "identifiers" to these, "source" to what is no page,
// "except REGEXP" by a text around the word, "in PATTERN" by a path. Empty lines and
// those that begin with # are comments.
func Words(tree fs.FS, files []string, list []byte) ([]Problem, error) {
	words, err := parseWords(list)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	for _, name := range files {
		if past.MatchString(name) || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		words := slices.DeleteFunc(slices.Clone(words), func(r retired) bool { return r.allows(name) })
		switch {
		case strings.HasSuffix(name, "_test.go"):
			problems = append(problems, wordsInLines(name, onlyTitles(content), words)...)
		case path.Ext(name) == ".go":
			problems = append(problems, wordsInGo(name, content, words)...)
		case path.Ext(name) == ".proto":
			problems = append(problems, wordsInLines(name, outsideComment.ReplaceAll(content, nil), words)...)
		case isPage.MatchString(name):
			words = slices.DeleteFunc(words, func(r retired) bool { return r.source })
			problems = append(problems, wordsInLines(name, onlyProse(content), words)...)
		}
	}
	return problems, nil
}

var (
	// past is a page that has the words of its time.
	past   = regexp.MustCompile(`(?:^|/)(?:decisions/\d{4}-[^/]+|CHANGELOG)\.md$`)
	isPage = regexp.MustCompile(`\.md(?:\.tmpl)?$`)
	// outsideComment is the part of a line of a schema that is no comment.
	outsideComment = regexp.MustCompile(`(?m)^(?:[^/\n]|/[^/\n])*`)
	// title finds the title of a spec.
	title = regexp.MustCompile(`\b(?:Describe|Context|It|DescribeTable)\(("(?:[^"\\]|\\.)*")`)
	// notProse is what a page quotes: blocks of code, code in a line, the titles
	// of specs, and where links lead.
	notProse = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`|\\[[^]]*\\]\\([^)\\s]*_test\\.go\\)|\\]\\([^)\\s]*\\)")
)

// onlyTitles returns a spec with nothing but its titles in its lines.
func onlyTitles(content []byte) []byte {
	var lines [][]byte
	for line := range bytes.Lines(content) {
		var titles [][]byte
		for _, found := range title.FindAllSubmatch(line, -1) {
			titles = append(titles, found[1])
		}
		lines = append(lines, bytes.Join(titles, []byte(" ")))
	}
	return bytes.Join(lines, []byte("\n"))
}

// onlyProse returns a page without what it quotes.
func onlyProse(content []byte) []byte {
	return notProse.ReplaceAllFunc(content, func(quoted []byte) []byte {
		return bytes.Repeat([]byte("\n"), bytes.Count(quoted, []byte("\n")))
	})
}

// wordsInLines returns the retired words in the lines of a text.
func wordsInLines(name string, content []byte, words []retired) []Problem {
	var problems []Problem
	n := 0
	for line := range bytes.Lines(content) {
		n++
		for _, w := range words {
			if found, _ := w.find(string(line)); found != "" && !w.identifiers {
				problems = append(problems, w.problem(name, n, found))
			}
		}
	}
	return problems
}

// wordsInGo returns the retired words in a Go file.
func wordsInGo(name string, content []byte, words []retired) []Problem {
	var problems []Problem
	file := token.NewFileSet().AddFile(name, -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	for {
		at, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return problems
		case token.IDENT:
			text = strings.Join(camelCase.FindAllString(text, -1), " ")
		case token.COMMENT, token.STRING:
		default:
			continue
		}
		for _, w := range words {
			if kind != token.IDENT && w.identifiers {
				continue
			}
			if found, offset := w.find(text); found != "" {
				problems = append(problems, w.problem(name, file.Line(at)+strings.Count(text[:offset], "\n"), found))
			}
		}
	}
}

func (r retired) problem(file string, line int, found string) Problem {
	return Problem{File: file, Line: line, Text: fmt.Sprintf("the word %q is retired: %s", found, r.instead)}
}

// camelCase finds the words of an identifier.
var camelCase = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

// allows reports whether a file may use the word.
func (r retired) allows(file string) bool {
	return slices.ContainsFunc(r.files, func(pattern string) bool {
		matched, _ := path.Match(pattern, file)
		return matched || strings.HasPrefix(file, pattern+"/")
	})
}

// find returns the first use of the word outside its exceptions, and where it is.
func (r retired) find(text string) (found string, offset int) {
	for _, e := range r.except {
		text = e.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("-", len(s)) })
	}
	at := r.word.FindStringIndex(text)
	if at == nil {
		return "", 0
	}
	return text[at[0]:at[1]], at[0]
}

func parseWords(list []byte) ([]retired, error) {
	var words []retired
	lines := bufio.NewScanner(bytes.NewReader(list))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var err error
		if strings.HasPrefix(line, " ") {
			err = restrict(words, strings.TrimSpace(line))
		} else {
			words, err = addWord(words, line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the list of words: %w", n, err)
		}
	}
	return words, lines.Err()
}

func addWord(words []retired, line string) ([]retired, error) {
	word, instead, ok := strings.Cut(line, " -> ")
	if !ok {
		return nil, fmt.Errorf("%q has no arrow", line)
	}
	re, err := regexp.Compile(`(?i)\b(?:` + strings.TrimSpace(word) + `)\b`)
	return append(words, retired{word: re, instead: strings.TrimSpace(instead)}), err
}

// restrict adds a restriction to the last word.
func restrict(words []retired, line string) error {
	kind, value, _ := strings.Cut(line, " ")
	if len(words) == 0 {
		return fmt.Errorf("%q belongs to no word", line)
	}
	last := &words[len(words)-1]
	switch kind {
	case "identifiers":
		last.identifiers = true
	case "source":
		last.source = true
	case "in":
		last.files = append(last.files, value)
	case "except":
		re, err := regexp.Compile("(?i)" + value)
		if err != nil {
			return err
		}
		last.except = append(last.except, re)
	default:
		return fmt.Errorf("%q is neither identifiers, source, except nor in", kind)
	}
	return nil
}
