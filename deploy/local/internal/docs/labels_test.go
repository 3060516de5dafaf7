package docs_test

import (
	"go/ast"
	"go/token"
	"go/types"
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

// identifiers returns the names in the product, as words in lower case without
// breaks.
func identifiers() map[string]bool {
	GinkgoHelper()
	names := map[string]bool{}
	inspect(services(), func(_ *token.FileSet, n ast.Node) bool {
		if name, is := n.(*ast.Ident); is {
			names[word(name.Name)] = true
		}
		return true
	})
	return names
}

// constant is one of a named string type.
type constant struct {
	at                token.Position
	name, kind, value string
}

// constants returns those of the services.
func constants() (all []constant) {
	GinkgoHelper()
	inspect(services(), func(files *token.FileSet, n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || spec.Type == nil {
			return true
		}
		kind, named := spec.Type.(*ast.Ident)
		if !named || types.Universe.Lookup(kind.Name) != nil {
			return true
		}
		for i, value := range spec.Values {
			literal, is := value.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			Expect(err).NotTo(HaveOccurred())
			all = append(all, constant{at: files.Position(n.Pos()), name: spec.Names[i].Name, kind: kind.Name, value: text})
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
		values := labelValues(string(text("../../../METRICS.md")))
		Expect(values).To(HaveKey("tombstone"), "of the fetcher's outcomes")
		Expect(values).To(HaveKey("dead_letter"), "of the dispositions")
		names := identifiers()
		strange := map[string]string{}
		for value, metric := range values {
			if !slices.Contains(foreignLabels(), value) && !isIdentifier(names, value) {
				strange[value] = metric
			}
		}
		Expect(strange).To(BeEmpty(), "values that are the word of no identifier")
	})

	It("and the outcomes, causes and states in logs are the words of their constants", func() {
		for _, c := range constants() {
			Expect(word(c.name)).To(ContainSubstring(word(c.value)), "%s: %s", c.at, c.name)
		}
	})

	It("are all of those that a type has", func() {
		values := labelValues(string(text("../../../METRICS.md")))
		labels := map[string]bool{}
		of := func(c constant) string { return filepath.Dir(c.at.Filename) + "." + c.kind }
		for _, c := range constants() {
			_, is := values[c.value]
			labels[of(c)] = labels[of(c)] || is
		}
		for _, c := range constants() {
			// How a key is has words of its own, some of which others have, too.
			if labels[of(c)] && of(c) != filepath.Join(root, "proto/condition")+".State" {
				Expect(values).To(HaveKey(c.value), "%s: %s", c.at, c.name)
			}
		}
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
