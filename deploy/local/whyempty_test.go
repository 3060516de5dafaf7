package local_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var (
	// eventRow matches an Event as `kubectl describe` prints it.
	eventRow = regexp.MustCompile(`(?m)^(?:Warning|Normal)  (\w+)  \S+  x-kv8s\.io/curl-me-that  (.+)$`)
	// variable matches the variable parts of a sentence: placeholders of the page and verbs of fmt.
	variable = regexp.MustCompile(`key page waits|example\.com|\bpage\b|\b4\d\d\b|\b2\b|'not correct'|\bcurl-me-that\b|` +
		`x-kv8s\.io/curl-refrsh|curl-refresh\?| 1 of |curl-expect, size\(json\.rules\) > 0|then every|` +
		`; |\): |: |%[a-z]|\d+ attempts?|hourly|\d\d:\d\d UTC|\b\d+[smh]\b|[\d,]+ bytes|` +
		`[0-9a-f]{0,12}…, `)
)

var _ = It("The page about empty keys quotes Events in the words of the code", func() {
	rows := eventRow.FindAllStringSubmatch(string(text("../docs/why-empty.md")), -1)
	Expect(len(rows)).To(BeNumerically(">=", 10))
	known := map[string]bool{}
	for _, literal := range literals("watcher", "writer", "proto/annotation", "proto/sentence") {
		for _, part := range parts(literal) {
			known[part] = true
		}
	}
	for _, row := range rows {
		Expect(pipeline.ClassOf(row[1])).NotTo(Equal(v1.FailureClass_FAILURE_CLASS_UNSPECIFIED), row[1])
		for _, part := range parts(row[2]) {
			Expect(known).To(HaveKey(part), row[2])
		}
	}
})

// parts returns the constant parts of a sentence.
func parts(sentence string) []string {
	var fixed []string
	for _, part := range variable.Split(sentence, -1) {
		if part = strings.Trim(part, " ';[]"); part != "" {
			fixed = append(fixed, part)
		}
	}
	return fixed
}

// literals returns the strings in the Go files below folders, without specs.
func literals(folders ...string) (found []string) {
	GinkgoHelper()
	for _, folder := range folders {
		Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if value, err := strconv.Unquote(literal.Value); err == nil {
						found = append(found, value)
					}
				}
				return true
			})
			return nil
		})).To(Succeed())
	}
	return found
}
