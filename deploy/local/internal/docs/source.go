package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// source is what the Go files of a tree declare.
type source struct {
	// files holds what each file declares: Name, or Type.Method.
	files map[string]map[string]bool
	// packages holds what the packages of a name declare together.
	packages map[string]map[string]bool
	// titles holds the string literals of each test file: the titles of its
	// specs are among them.
	titles map[string]map[string]bool
}

// readSource reads the Go files among files.
func readSource(tree fs.FS, files []string) (source, error) {
	s := source{
		files:    map[string]map[string]bool{},
		packages: map[string]map[string]bool{},
		titles:   map[string]map[string]bool{},
	}
	for _, name := range files {
		if path.Ext(name) != ".go" {
			continue
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return s, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
		if err != nil {
			return s, err
		}
		s.add(name, file)
	}
	return s, nil
}

func (s source) add(name string, file *ast.File) {
	declared := map[string]bool{}
	for _, d := range file.Decls {
		declare(declared, d)
	}
	s.files[name] = declared
	if strings.HasSuffix(name, "_test.go") {
		s.titles[name] = literals(file)
		return
	}
	if s.packages[file.Name.Name] == nil {
		s.packages[file.Name.Name] = map[string]bool{}
	}
	for symbol := range declared {
		s.packages[file.Name.Name][symbol] = true
	}
}

// declare adds what a declaration declares.
func declare(declared map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			declared[d.Name.Name] = true
			return
		}
		declared[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				declared[spec.Name.Name] = true
				declareMembers(declared, spec)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					declared[name.Name] = true
				}
			}
		}
	}
}

// declareMembers adds the fields of a struct and the methods of an interface.
func declareMembers(declared map[string]bool, spec *ast.TypeSpec) {
	var members *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		return
	}
	for _, member := range members.List {
		for _, name := range member.Names {
			declared[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// receiver returns the name of a method's type, without star and parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func literals(file *ast.File) map[string]bool {
	found := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found[text] = true
			}
		}
		return true
	})
	return found
}
