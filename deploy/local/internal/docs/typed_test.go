package docs_test

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// module is the path below which the packages of this repository are.
const module = "github.com/kv8s/curl-me-that/"

// typed is the source of packages of this repository with the types in it. What
// they import from elsewhere has none.
type typed struct {
	files    *token.FileSet
	info     types.Info
	packages map[string]*types.Package
	// syntax of the files of all packages.
	syntax []*ast.File
	// functions are the declarations of those that are declared.
	functions map[types.Object]*ast.FuncDecl
}

// checkTypes reads the packages below folders of the repository, without specs.
func checkTypes(folders []string) *typed {
	GinkgoHelper()
	t := &typed{
		files: token.NewFileSet(), packages: map[string]*types.Package{}, functions: map[types.Object]*ast.FuncDecl{},
		info: types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		},
	}
	for _, folder := range folders {
		Expect(filepath.WalkDir(filepath.Join(root, folder), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			relative, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			_, err = t.Import(module + filepath.ToSlash(relative))
			return err
		})).To(Succeed())
	}
	for _, file := range t.syntax {
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				t.functions[t.info.Defs[f.Name]] = f
			}
		}
	}
	return t
}

// Import implements types.Importer.
func (t *typed) Import(name string) (*types.Package, error) {
	if known := t.packages[name]; known != nil {
		return known, nil
	}
	folder, ours := strings.CutPrefix(name, module)
	if name == "errors" { // through which errors of this repository come
		file, err := parser.ParseFile(t.files, name, "package errors; func AsType[E error](error) (e E, is bool) { return }", 0)
		return t.check(name, []*ast.File{file}), err
	}
	if !ours {
		return types.NewPackage(name, path.Base(name)), nil
	}
	found, err := build.ImportDir(filepath.Join(root, folder), 0)
	if _, none := errors.AsType[*build.NoGoError](err); err != nil && !none {
		return nil, err
	}
	var files []*ast.File
	for _, base := range found.GoFiles {
		file, err := parser.ParseFile(t.files, filepath.Join(found.Dir, base), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	t.syntax = append(t.syntax, files...)
	return t.check(name, files), nil
}

// check gives types to the files of a package, as far as its imports have any.
func (t *typed) check(name string, files []*ast.File) *types.Package {
	config := types.Config{Importer: t, Error: func(error) {}}
	t.packages[name], _ = config.Check(name, t.files, files, &t.info)
	return t.packages[name]
}

// visit visits the syntax of all packages.
func (t *typed) visit(see func(n ast.Node)) {
	for _, file := range t.syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				see(n)
			}
			return true
		})
	}
}

// object returns what a name or a selector stands for; nil: unknown.
func (t *typed) object(e ast.Expr) types.Object {
	switch e := e.(type) {
	case *ast.Ident:
		if o := t.info.Uses[e]; o != nil {
			return o
		}
		return t.info.Defs[e]
	case *ast.SelectorExpr:
		return t.info.Uses[e.Sel]
	case *ast.IndexExpr:
		return t.object(e.X)
	}
	return nil
}
