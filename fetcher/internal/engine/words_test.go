package engine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

var _ = Describe("Words", func() {
	DescribeTable("of metric labels and of the log are the identifiers'",
		func(dir, kind string) {
			values := constants(dir, kind)
			Expect(values).NotTo(BeEmpty())
			for name, value := range values {
				Expect(snake(name)).To(Equal(value), "%s in %s", name, dir)
			}
		},
		Entry("outcomes", ".", "outcome"),
		Entry("causes of parking", ".", "parkCause"),
		Entry("causes of the throttle", "../throttle", "Cause"),
		Entry("states of hosts", "../throttle", "State"),
		Entry("phases of a GET", "../get", "Phase"),
	)

	It("has a counter for each outcome", func() {
		f := newWorld(natstest.Options{}, pipeline.Topology{}).fetcher()
		for _, value := range constants(".", "outcome") {
			Expect(f.metric("curlmethat_fetcher_requests_total", value)).To(BeZero())
		}
	})
})

// constants returns the string constants of a type that the sources in dir
// declare, by name.
func constants(dir, kind string) map[string]string {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, path := range files {
		source, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		Expect(err).NotTo(HaveOccurred())
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typed, ok := spec.Type.(*ast.Ident); !ok || typed.Name != kind || len(spec.Values) == 0 {
				return true
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			value, err := strconv.Unquote(literal.Value)
			Expect(err).NotTo(HaveOccurred())
			found[spec.Names[0].Name] = value
			return true
		})
	}
	return found
}

// snake returns a name in lower case, its words joined by underscores.
func snake(name string) string {
	if strings.ToUpper(name) == name {
		return strings.ToLower(name)
	}
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
