package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// retired is a word that the code no longer uses, and where it still may.
type retired struct {
	word *regexp.Regexp
	// instead is what the code calls it now.
	instead string
	// except are texts around the word that mean something else.
	except []*regexp.Regexp
	// files are patterns of paths that may use the word.
	files []string
}

// Words returns where Go files other than specs and generated code use a word
// of a list. A line of the list is
//
//	WORD -> INSTEAD
//
// where WORD is a regular expression for a whole word, upper or lower case. Lines
// below it that begin with a space name what is excepted: "except REGEXP" for a
// text around the word, "in PATTERN" for a path. Empty lines and those that begin
// with # are comments.
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
		for i, line := range bytes.Split(content, []byte("\n")) {
			for _, w := range words {
				if found := w.in(name, line); found != "" {
					problems = append(problems, Problem{File: name, Line: i + 1, Text: fmt.Sprintf("the word %q is retired: %s", found, w.instead)})
				}
			}
		}
	}
	return problems, nil
}

// in returns the word as a line of a file has it, or nothing.
func (r retired) in(file string, line []byte) string {
	found := r.word.Find(line)
	if found == nil {
		return ""
	}
	for _, pattern := range r.files {
		if ok, _ := path.Match(pattern, file); ok || strings.HasPrefix(file, pattern+"/") {
			return ""
		}
	}
	for _, text := range r.except {
		line = text.ReplaceAll(line, nil)
	}
	return string(r.word.Find(line))
}

func parseWords(list []byte) ([]retired, error) {
	var words []retired
	lines := bufio.NewScanner(bytes.NewReader(list))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		err := parseWord(&words, line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the list of words: %w", n, err)
		}
	}
	return words, lines.Err()
}

// parseWord adds a word, or an exception to the last one.
func parseWord(words *[]retired, line string) error {
	if !strings.HasPrefix(line, " ") {
		word, instead, ok := strings.Cut(line, " -> ")
		if !ok {
			return fmt.Errorf("%q has no arrow", line)
		}
		re, err := regexp.Compile(`(?i)\b(?:` + strings.TrimSpace(word) + `)\b`)
		*words = append(*words, retired{word: re, instead: strings.TrimSpace(instead)})
		return err
	}
	kind, value, _ := strings.Cut(strings.TrimSpace(line), " ")
	if len(*words) == 0 {
		return fmt.Errorf("exception %q belongs to no word", value)
	}
	last := &(*words)[len(*words)-1]
	switch kind {
	case "in":
		last.files = append(last.files, value)
		return nil
	case "except":
		re, err := regexp.Compile("(?i)" + value)
		last.except = append(last.except, re)
		return err
	}
	return fmt.Errorf("%q is neither except nor in", kind)
}
