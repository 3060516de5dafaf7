package rule

import (
	"context"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

const (
	// maxWork is the maximum number of steps in bounded calls; a step takes up to 50 ns.
	maxWork = 2 << 20
	// maxCopied is the maximum number of bytes that bounded calls copy.
	maxCopied = 16 << 20
	// maxPattern is the maximum length of a regular expression in bytes.
	maxPattern = MaxLength
)

// meter bounds the calls of an evaluation.
type meter struct {
	ctx          context.Context //nolint:containedctx // of the current evaluation
	work, copied int
}

// exceeded reports whether a limit is exceeded.
func (m *meter) exceeded() bool {
	return m.work > maxWork || m.copied > maxCopied || m.ctx.Err() != nil
}

// spend counts steps and copied bytes, and returns an error if a limit is exceeded.
func (m *meter) spend(work, copied int) ref.Val {
	m.work, m.copied = m.work+work, m.copied+copied
	if m.exceeded() {
		return types.NewErr("the evaluation exceeds a limit")
	}
	return nil
}

// bound replaces a call whose duration or memory depends on its arguments.
func (m *meter) bound(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, isCall := i.(interpreter.InterpretableCall)
	if !isCall {
		return i, nil
	}
	var do func(args ...ref.Val) ref.Val
	switch call.Function() {
	case operators.Equals:
		do = func(args ...ref.Val) ref.Val {
			return m.weighed(args, func() ref.Val { return types.Equal(args[0], args[1]) })
		}
	case operators.NotEquals:
		do = func(args ...ref.Val) ref.Val {
			return m.weighed(args, func() ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) })
		}
	case operators.In, operators.OldIn:
		do = m.contains
	case operators.Add:
		do = m.add
	case overloads.Matches:
		do = m.matches
	case overloads.TypeConvertString:
		do = func(args ...ref.Val) ref.Val { return m.convert(args[0], types.StringType) }
	case overloads.TypeConvertBytes:
		do = func(args ...ref.Val) ref.Val { return m.convert(args[0], types.BytesType) }
	default:
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), do), nil
}

// weighed calls do if the arguments are small enough. Values share parts, so a small expression can
// make one that takes forever to walk through.
func (m *meter) weighed(args []ref.Val, do func() ref.Val) ref.Val {
	for _, arg := range args {
		if err := m.weigh(arg); err != nil {
			return err
		}
	}
	return do()
}

// weigh walks through a value.
func (m *meter) weigh(v ref.Val) ref.Val {
	const element = 2
	if err := m.spend(element+length(v)/64, 0); err != nil {
		return err
	}
	container, isMap := v.(traits.Mapper)
	if list, isList := v.(traits.Lister); !isMap && !isList || isList && size(list) == 0 {
		return nil
	}
	for it := v.(traits.Iterable).Iterator(); it.HasNext() == types.True; { //nolint:forcetypeassert // lists and maps are
		next := it.Next()
		if isMap {
			next = container.Get(next)
		}
		if err := m.weigh(next); err != nil {
			return err
		}
	}
	return nil
}

// length returns the number of bytes of text.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

func size(v traits.Sizer) int64 {
	n, _ := v.Size().(types.Int)
	return int64(n)
}

func (m *meter) contains(args ...ref.Val) ref.Val {
	container, ok := args[1].(traits.Container)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	if _, isMap := container.(traits.Mapper); isMap { // finds a key without a walk
		return container.Contains(args[0])
	}
	return m.weighed(args, func() ref.Val { return container.Contains(args[0]) })
}

func (m *meter) add(args ...ref.Val) ref.Val {
	adder, ok := args[0].(traits.Adder)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	if err := m.spend(1, length(args[0])+length(args[1])); err != nil {
		return err
	}
	return adder.Add(args[1])
}

func (m *meter) convert(v ref.Val, to ref.Type) ref.Val {
	if err := m.spend(1, length(v)); err != nil {
		return err
	}
	return v.ConvertToType(to)
}

// matches bounds the product of text and instructions, because each character may meet each of them.
func (m *meter) matches(args ...ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	pattern, isPattern := args[1].(types.String)
	if !isText || !isPattern {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	if len(pattern) > maxPattern {
		return types.NewErr("the regular expression is too long")
	}
	parsed, err := syntax.Parse(string(pattern), syntax.Perl)
	if err != nil {
		return types.NewErr("invalid regular expression")
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return types.NewErr("invalid regular expression")
	}
	if err := m.spend(len(program.Inst)*(1+len(text)), 0); err != nil {
		return err
	}
	compiled, err := regexp.Compile(string(pattern))
	if err != nil {
		return types.NewErr("invalid regular expression")
	}
	return types.Bool(compiled.MatchString(string(text)))
}
