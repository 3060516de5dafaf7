package docs_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// closed are the labels of metrics, fields of log lines and attributes of spans whose
// values are words of a closed set, of the code's own.
func closed() []string {
	return []string{
		"budget", "cause", "disposition", "kind", "link", "outcome", "phase", "reason", "result", "rule", "state", "verdict",
	}
}

// named are the labels whose values are names: of programs, streams, methods of HTTP.
func named() []string { return []string{"component", "consumer", "method", "name", "stream"} }

// counted is before the labels of metrics, to tell them from fields of log lines and
// attributes of spans.
const counted = "metric "

// source is what sets a variable: an expression, or one of the results of a call.
type source struct {
	ast.Expr
	result int
}

// origins follows the words of metric labels, log lines and spans to the constants that
// they come from, through variables, fields, parameters and results.
type origins struct {
	*typed
	// sources of each variable, field and parameter.
	sources map[types.Object][]source
	// seen are the sources that were followed for a label, which ends recursion.
	seen map[string]map[source]bool
	// found are the constants by label, those of metrics behind the prefix counted.
	found map[string]map[*types.Const]bool
	// wrong is what is no constant.
	wrong []string
}

func followWords(t *typed) *origins {
	o := &origins{
		typed: t, sources: map[types.Object][]source{}, seen: map[string]map[source]bool{}, found: map[string]map[*types.Const]bool{},
	}
	for _, label := range closed() {
		for _, of := range []string{label, counted + label} {
			o.seen[of], o.found[of] = map[source]bool{}, map[*types.Const]bool{}
		}
	}
	o.visit(o.assign)
	o.visit(o.sink)
	return o
}

// assign notes what variables, fields and parameters are set to.
func (o *origins) assign(n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if len(n.Rhs) == len(n.Lhs) {
				o.set(o.object(to), source{Expr: n.Rhs[i]})
			} else {
				o.set(o.object(to), source{n.Rhs[0], i})
			}
		}
	case *ast.ValueSpec:
		for i, value := range n.Values {
			o.set(o.info.Defs[n.Names[i]], source{Expr: value})
		}
	case *ast.RangeStmt:
		if n.Value != nil {
			o.set(o.object(n.Value), source{Expr: n.X})
		}
	case *ast.CompositeLit:
		o.assignFields(n)
	case *ast.CallExpr:
		function, is := o.object(n.Fun).(*types.Func)
		if !is {
			return
		}
		parameters := function.Origin().Signature().Params()
		for i, argument := range n.Args {
			if last := parameters.Len() - 1; last >= 0 {
				o.set(parameters.At(min(i, last)), source{Expr: argument})
			}
		}
	}
}

func (o *origins) assignFields(literal *ast.CompositeLit) {
	var fields *types.Struct
	if t := o.info.Types[literal].Type; t != nil {
		fields, _ = t.Underlying().(*types.Struct)
	}
	for i, element := range literal.Elts {
		if pair, is := element.(*ast.KeyValueExpr); is {
			o.set(o.object(pair.Key), source{Expr: pair.Value})
		} else if fields != nil {
			o.set(fields.Field(i), source{Expr: element})
		}
	}
}

func (o *origins) set(to types.Object, value source) {
	if to != nil {
		o.sources[to] = append(o.sources[to], value)
	}
}

// sink follows the words of a call that makes a label, a field of a log line or an
// attribute of a span of them.
func (o *origins) sink(n ast.Node) {
	call, is := n.(*ast.CallExpr)
	if !is {
		return
	}
	if values, label := o.label(call); values != nil {
		if !slices.Contains(slices.Concat(closed(), named()), label) {
			o.complain(call, "%q is a label of which this spec does not know whether it is closed", label)
		}
		o.followClosed(counted+label, values...)
	}
	selector, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return
	}
	switch name := selector.Sel.Name; {
	case name == "WithLabelValues":
		for _, made := range append(o.sources[o.object(selector.X)], source{Expr: selector.X}) {
			ast.Inspect(made.Expr, func(n ast.Node) bool {
				if made, is := n.(*ast.CallExpr); is {
					if _, label := o.label(made); label != "" {
						o.followClosed(counted+label, call.Args...)
					}
				}
				return true
			})
		}
	case name == "Str" && len(call.Args) == 2:
		o.followClosed(o.text(call.Args[0]), call.Args[1])
	case name == "Fail" && o.isOf(selector, "proto/service/tracing"):
		o.followClosed("reason", call.Args[1])
	case name == "String" && len(call.Args) == 1 && o.isOf(selector.X, "proto/service/tracing"):
		o.followClosed(strings.ToLower(o.object(selector.X).Name()), call.Args[0])
	}
}

// label returns the name and the values of a label that a call makes.
func (o *origins) label(call *ast.CallExpr) (values []ast.Expr, name string) {
	if f, is := o.object(call.Fun).(*types.Func); !is || f.Name() != "Of" || !o.isOf(call.Fun, "proto/service/metric") {
		return nil, ""
	}
	return call.Args[1:], o.text(call.Args[0])
}

// isOf reports whether something is declared in a package of this repository.
func (o *origins) isOf(e ast.Expr, folder string) bool {
	of := o.object(e)
	return of != nil && of.Pkg() != nil && of.Pkg().Path() == module+folder
}

func (o *origins) followClosed(label string, values ...ast.Expr) {
	if slices.Contains(closed(), strings.TrimPrefix(label, counted)) {
		o.followAll(values, label)
	}
}

// text returns the value of a constant text.
func (o *origins) text(e ast.Expr) string {
	if v := o.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v)
	}
	return ""
}

func (o *origins) followAll(all []ast.Expr, label string) {
	for _, e := range all {
		o.follow(source{Expr: e}, label)
	}
}

// follow finds the constants that a value comes from.
func (o *origins) follow(from source, label string) {
	if o.seen[label][from] {
		return
	}
	o.seen[label][from] = true
	switch e := from.Expr.(type) {
	case *ast.ParenExpr:
		o.follow(source{Expr: e.X}, label)
		return
	case *ast.BasicLit:
		if e.Value != `""` {
			o.complain(e, "%s is a literal", e.Value)
		}
		return
	case *ast.CompositeLit:
		o.followAll(e.Elts, label)
		return
	case *ast.CallExpr:
		o.followCall(e, from.result, label)
		return
	}
	object := o.object(from.Expr)
	if c, is := object.(*types.Const); is {
		o.found[label][c] = true
		return
	}
	typed := o.followType(o.info.Types[from.Expr].Type, label)
	if !typed && len(o.sources[object]) == 0 {
		o.complain(from, "%s comes from no constant", types.ExprString(from.Expr))
	}
	for _, s := range o.sources[object] {
		o.follow(s, label)
	}
}

// followType finds all constants of a named type of texts.
func (o *origins) followType(t types.Type, label string) bool {
	switch t := types.Unalias(t).(type) {
	case *types.Slice:
		return o.followType(t.Elem(), label)
	case *types.Named:
		if basic, is := t.Underlying().(*types.Basic); !is || basic.Kind() != types.String {
			return false
		}
		of, some := t.Obj().Pkg().Scope(), false
		for _, name := range of.Names() {
			if c, is := of.Lookup(name).(*types.Const); is && types.Identical(c.Type(), t) {
				o.found[label][c] = true
				some = true
			}
		}
		return some
	}
	return false
}

// followCall finds the constants that a conversion or a function returns.
func (o *origins) followCall(call *ast.CallExpr, result int, label string) {
	if o.info.Types[call.Fun].IsType() || o.info.Types[call.Fun].IsBuiltin() {
		o.followAll(call.Args, label)
		return
	}
	function, _ := o.object(call.Fun).(*types.Func)
	if function != nil && slices.Contains([]string{"pipeline.CauseName", "pipeline.Reason"}, function.Pkg().Name()+"."+function.Name()) {
		return // of enumerations, of which another spec holds the words
	}
	var declared *ast.FuncDecl
	if function != nil {
		declared = o.functions[function.Origin()]
	}
	typed := o.followType(o.info.Types[call].Type, label)
	if declared == nil || declared.Body == nil {
		if !typed {
			o.complain(call, "%s comes from no constant", types.ExprString(call))
		}
		return
	}
	ast.Inspect(declared.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if result < len(n.Results) {
				o.follow(source{Expr: n.Results[result]}, label)
			}
		}
		return true
	})
}

func (o *origins) complain(at ast.Node, format string, args ...any) {
	o.wrong = append(o.wrong, o.at(at.Pos())+": "+fmt.Sprintf(format, args...))
}

// at returns the file of a place, relative to the repository.
func (o *origins) at(place token.Pos) string {
	name, err := filepath.Rel(root, o.files.Position(place).Filename)
	Expect(err).NotTo(HaveOccurred())
	return filepath.ToSlash(name)
}

// word returns a name in lower case without breaks.
func word(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// isWordOf reports whether the name of a constant is its value, by itself or behind the
// name of its type or of the label that has it.
func isWordOf(c *types.Const, label string) bool {
	prefixes := []string{"", word(label)}
	if named, is := types.Unalias(c.Type()).(*types.Named); is {
		prefixes = append(prefixes, word(named.Obj().Name()))
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return word(c.Name()) == prefix+word(constant.StringVal(c.Val())) })
}

// elsewhere are problems that are none: words that come from elsewhere.
func elsewhere() []string {
	return []string{
		// Reasons of conditions are constants of the API; the type of a condition is not ours.
		"watcher/keeper/internal/reconcile/event.go: is.Reason comes from no constant",
		// Why a container fails is what the kubelet calls it, in CamelCase or else Error.
		"watcher/keeper/internal/sidecar/sidecar.go: unique.Make(text).Value() comes from no constant",
		`watcher/keeper/internal/sidecar/sidecar.go: "Error" is a literal`,
	}
}

// labelValues returns the values of the closed labels in metrics.md, by label.
func labelValues(page string) map[string][]string {
	value := regexp.MustCompile("`([a-zA-Z_-]+)`")
	values := map[string][]string{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`curlmethat_") {
			continue
		}
		for text := range strings.SplitSeq(cells[3], "<br>") {
			label, all, _ := strings.Cut(strings.TrimSpace(text), ":")
			for _, v := range value.FindAllStringSubmatch(all, -1) {
				values[strings.Trim(label, "`")] = append(values[strings.Trim(label, "`")], v[1])
			}
		}
	}
	return values
}

func distinct(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }

// enumerated are the words of failure classes and causes, which are made of the names of
// their enumerations.
func enumerated() (words []string) {
	for n := range v1.FailureClass_name {
		words = append(words, pipeline.Reason(v1.FailureClass(n)))
	}
	for n := range v1.Cause_name {
		words = append(words, pipeline.CauseName(v1.Cause(n)))
	}
	return words
}

var _ = Describe("The words of metrics, logs and spans", func() {
	var o *origins
	BeforeEach(func() { o = followWords(checkTypes(services())) })

	It("takes each label, log field and attribute from a constant of its name", func() {
		problems := slices.Clone(o.wrong)
		for label, constants := range o.found {
			for c := range constants {
				if !isWordOf(c, strings.TrimPrefix(label, counted)) {
					problems = append(problems, fmt.Sprintf("%s: %s has the value %s", o.at(c.Pos()), c.Name(), c.Val()))
				}
			}
		}
		Expect(distinct(problems)).To(ConsistOf(elsewhere()))
	})

	It("finds the values that metrics.md has, and no others", func() {
		page := labelValues(string(text("../../../docs/metrics.md")))
		Expect(page["outcome"]).To(ContainElement("tombstone"), "of the fetcher's outcomes")
		Expect(page["disposition"]).To(ContainElement("dead_letter"))
		for _, label := range closed() {
			var values []string
			for c := range o.found[counted+label] {
				values = append(values, constant.StringVal(c.Val()))
			}
			known := distinct(page[label])
			Expect(known).To(ContainElements(distinct(values)), "label %s", label)
			Expect(append(values, enumerated()...)).To(ContainElements(known), "label %s", label)
		}
	})

	It("names failure classes and causes as their enumerations do", func() {
		for n, name := range v1.FailureClass_name {
			if n != 0 {
				Expect(word(pipeline.Reason(v1.FailureClass(n)))).To(Equal(word(strings.TrimPrefix(name, "FAILURE_CLASS_"))))
			}
		}
		for n, name := range v1.Cause_name {
			Expect(word("cause_" + pipeline.CauseName(v1.Cause(n)))).To(Equal(word(name)))
		}
	})
})
