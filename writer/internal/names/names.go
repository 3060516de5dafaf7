// Package names reads the names of constants for specs that hold them against
// the words in metric labels and logs.
package names

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"unicode"
)

// Constants returns the names in snake case of the constants in the block of a
// file that begins with one of a type, in their order.
func Constants(file, typeName string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read constants: %w", err)
	}
	var names []string
	for _, decl := range parsed.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		first, ok := block.Specs[0].(*ast.ValueSpec)
		if !ok {
			continue
		}
		if name, ok := first.Type.(*ast.Ident); !ok || name.Name != typeName {
			continue
		}
		for _, spec := range block.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok {
				names = append(names, snake(value.Names[0].Name))
			}
		}
	}
	return names, nil
}

// snake returns a name in snake case; a row of capitals is one word.
func snake(name string) string {
	var text strings.Builder
	last := rune('A')
	for _, c := range name {
		if unicode.IsUpper(c) && !unicode.IsUpper(last) {
			text.WriteByte('_')
		}
		text.WriteRune(unicode.ToLower(c))
		last = c
	}
	return text.String()
}
