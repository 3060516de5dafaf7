package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// root of the repository.
const root = "../../../.."

// services returns the modules of which the services are made.
func services() []string { return []string{"proto", "watcher", "fetcher", "writer"} }

// inspect visits the syntax of the Go files below folders, without specs.
func inspect(folders []string, visit func(files *token.FileSet, n ast.Node) bool) {
	GinkgoHelper()
	files := token.NewFileSet()
	for _, folder := range folders {
		Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool { return n == nil || visit(files, n) })
			return nil
		})).To(Succeed())
	}
}

var _ = Describe("The functions outside specs", func() {
	It("have at most 25 lines in nine cases of ten, and never more than 60", func() {
		var lengths []int
		inspect(append(services(), "deploy"), func(files *token.FileSet, n ast.Node) bool {
			f, is := n.(*ast.FuncDecl)
			if !is || f.Body == nil {
				return true
			}
			begin, end := files.Position(f.Body.Lbrace), files.Position(f.Body.Rbrace)
			if generated := strings.Contains(begin.Filename, ".pb.go") || strings.Contains(begin.Filename, "zz_generated"); generated {
				return false
			}
			lines := max(end.Line-begin.Line-1, 1)
			Expect(lines).To(BeNumerically("<=", 60), "%s: %s", begin, f.Name.Name)
			lengths = append(lengths, lines)
			return false
		})
		slices.Sort(lengths)
		Expect(len(lengths)).To(BeNumerically(">", 1000))
		Expect(lengths[len(lengths)*9/10]).To(BeNumerically("<=", 25), "lines of the longest of nine in ten")
	})
})
