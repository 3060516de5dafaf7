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

// retired is a word that the code no longer uses, and where it still may.
type retired struct {
	word *regexp.Regexp
	// instead is what the code calls it now.
	instead string
	// identifiers reports whether comments and texts may use the word.
	identifiers bool
	// except are texts around the word that mean something else.
	except []*regexp.Regexp
	// files are patterns of paths, or folders, that may use the word.
	files []string
}

// Words returns where Go files other than specs and generated code use a word
// of a list, in an identifier, a comment or a string. A line of the list is
//
//	WORD -> INSTEAD
//
// where WORD is a regular expression for a whole word, upper or lower case. The
// words of an identifier such as nextAttempt are next and attempt. Lines below it that
// begin with a space restrict it: "identifiers" to these, "except REGEXP" by a text
// around the word, "in PATTERN" by a path. Empty lines and those that begin with #
// are comments.
func Words(tree fs.FS, files []string, list []byte) ([]Problem, error) {
	words, err := parseWords(list)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	for _, name := range files {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		problems = append(problems, wordsIn(name, content, words)...)
	}
	return problems, nil
}

// wordsIn returns the retired words in one file.
func wordsIn(name string, content []byte, words []retired) []Problem {
	words = slices.DeleteFunc(slices.Clone(words), func(r retired) bool { return r.allows(name) })
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
				line := file.Line(at) + strings.Count(text[:offset], "\n")
				problems = append(problems, Problem{File: name, Line: line, Text: fmt.Sprintf("the word %q is retired: %s", found, w.instead)})
			}
		}
	}
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
	case "in":
		last.files = append(last.files, value)
	case "except":
		re, err := regexp.Compile("(?i)" + value)
		if err != nil {
			return err
		}
		last.except = append(last.except, re)
	default:
		return fmt.Errorf("%q is neither identifiers, except nor in", kind)
	}
	return nil
}
