package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// foreignLabels are values that are names outside the code: of programs, of
// streams.
func foreignLabels() []string {
	return []string{"watcher", "fetcher", "writer", "keeper", "CURL_REQUESTS", "CURL_RESULTS", "CURL_FAILURES", "CURL_AUDIT"}
}

// labelValues returns the values of the closed labels in METRICS.md, each with
// the metric that has it.
func labelValues(page string) map[string]string {
	value := regexp.MustCompile("`([a-zA-Z_-]+)`")
	values := map[string]string{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`curlmethat_") {
			continue
		}
		for label := range strings.SplitSeq(cells[3], "<br>") {
			_, all, _ := strings.Cut(label, ":")
			for _, v := range value.FindAllStringSubmatch(all, -1) {
				values[v[1]] = strings.TrimSpace(cells[1]) + " " + label
			}
		}
	}
	return values
}

// inspect visits the syntax of the product, without its specs.
func inspect(root string, visit func(path string, n ast.Node) bool) {
	GinkgoHelper()
	for _, module := range []string{"proto", "watcher", "fetcher", "writer"} {
		Expect(filepath.WalkDir(filepath.Join(root, module), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				return visit(path, n)
			})
			return nil
		})).To(Succeed())
	}
}

// identifiers returns the names in the product, as words in lower case without
// breaks.
func identifiers(root string) map[string]bool {
	GinkgoHelper()
	names := map[string]bool{}
	inspect(root, func(_ string, n ast.Node) bool {
		if name, is := n.(*ast.Ident); is {
			names[word(name.Name)] = true
		}
		return true
	})
	return names
}

// misnamed returns the constants of named string types whose name does not have
// the word of their value.
func misnamed(root string) (all []string) {
	GinkgoHelper()
	inspect(root, func(path string, n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || spec.Type == nil {
			return true
		}
		if t, named := spec.Type.(*ast.Ident); !named || types.Universe.Lookup(t.Name) != nil {
			return true
		}
		for i, value := range spec.Values {
			literal, is := value.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			Expect(err).NotTo(HaveOccurred())
			if !strings.Contains(word(spec.Names[i].Name), word(text)) {
				all = append(all, path+": "+spec.Names[i].Name+" is "+literal.Value)
			}
		}
		return true
	})
	return all
}

func word(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

var _ = Describe("The values of metric labels", func() {
	It("are each the word of an identifier, so that a search for one ends in the code", func() {
		page, err := os.ReadFile("../../../METRICS.md")
		Expect(err).NotTo(HaveOccurred())
		values := labelValues(string(page))
		Expect(values).To(HaveKey("tombstone"), "of the fetcher's outcomes")
		Expect(values).To(HaveKey("dead_letter"), "of the dispositions")
		names := identifiers("../../../..")
		strange := map[string]string{}
		for value, metric := range values {
			if !slices.Contains(foreignLabels(), value) && !isIdentifier(names, value) {
				strange[value] = metric
			}
		}
		Expect(strange).To(BeEmpty(), "values that are the word of no identifier")
	})

	It("and the outcomes, causes and states in logs are the words of their constants", func() {
		Expect(misnamed("../../../..")).To(BeEmpty())
	})
})

// isIdentifier reports whether a value is an identifier by itself, or behind the
// prefix of an enumeration, such as in CAUSE_NEW and actionDeadLetter.
func isIdentifier(names map[string]bool, value string) bool {
	for _, prefix := range []string{"", "class", "cause", "causecause", "action", "failureclassfailureclass", "kind", "reason"} {
		if names[prefix+word(value)] {
			return true
		}
	}
	return false
}
