package rule

import (
	"context"
	"regexp"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

const (
	// maxWork is the maximum number of steps in bounded calls of an expression. A step takes up to 50 ns.
	maxWork = 2 << 20
	// compared, copied and parsed are the numbers of bytes that a step compares, copies or parses. An expression
	// can copy at most 16 MiB.
	compared, copied, parsed = 64, 8, 2
)

// meter limits the calls of an evaluation.
type meter struct {
	ctx context.Context //nolint:containedctx // of the current evaluation
	// left is the number of remaining steps.
	left int
}

// errExceeded ends an evaluation that exceeds a limit.
var errExceeded = types.NewErr("the evaluation exceeds a limit") //nolint:gochecknoglobals // immutable

// exceeded reports whether a limit is exceeded.
func (m *meter) exceeded() bool { return m.left < 0 || m.ctx.Err() != nil }

// bounded holds the functions whose time or memory depends on their arguments, except matches, and how
// many bytes they process per step.
var bounded = map[string]struct {
	perStep int
	do      func(args ...ref.Val) ref.Val
}{
	operators.Equals: {compared, func(v ...ref.Val) ref.Val { return types.Equal(v[0], v[1]) }},
	operators.NotEquals: {compared, func(v ...ref.Val) ref.Val {
		return types.Bool(types.Equal(v[0], v[1]) != types.True)
	}},
	operators.In:                {compared, contains},
	operators.Add:               {copied, add},
	overloads.Contains:          {compared, func(v ...ref.Val) ref.Val { return types.StringContains(v[0], v[1]) }},
	overloads.Size:              {compared, size},
	overloads.TypeConvertString: {copied, to(types.StringType)},
	overloads.TypeConvertBytes:  {copied, to(types.BytesType)},

	overloads.TypeConvertBool:      {parsed, to(types.BoolType)},
	overloads.TypeConvertDouble:    {parsed, to(types.DoubleType)},
	overloads.TypeConvertDuration:  {parsed, to(types.DurationType)},
	overloads.TypeConvertInt:       {parsed, to(types.IntType)},
	overloads.TypeConvertTimestamp: {parsed, to(types.TimestampType)},
	overloads.TypeConvertUint:      {parsed, to(types.UintType)},
}

func to(t ref.Type) func(v ...ref.Val) ref.Val {
	return func(v ...ref.Val) ref.Val { return v[0].ConvertToType(t) }
}

func size(v ...ref.Val) ref.Val {
	if sizer, ok := v[0].(traits.Sizer); ok {
		return sizer.Size()
	}
	return types.MaybeNoSuchOverloadErr(v[0])
}

// bound replaces a call whose time or memory depends on its arguments.
func (m *meter) bound(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, isCall := i.(interpreter.InterpretableCall)
	if !isCall {
		return i, nil
	}
	var do func(args ...ref.Val) ref.Val
	if b, found := bounded[call.Function()]; found {
		do = func(args ...ref.Val) ref.Val {
			for at, arg := range args {
				_, isContainer := arg.(traits.Iterable)
				_, isMap := arg.(traits.Mapper)
				isLookup := isMap && at == 1 && call.Function() == operators.In || isContainer && call.Function() == overloads.Size
				if !isLookup && !m.weigh(arg, b.perStep) {
					return errExceeded
				}
			}
			return b.do(args...)
		}
	} else if call.Function() == certsFunction {
		do = m.certs
	} else if call.Function() == overloads.Matches {
		var err error
		if do, err = m.matches(call.Args()[1]); err != nil {
			return nil, err
		}
	}
	if do == nil {
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), do), nil
}

// weigh walks through a value, and reports whether it is small enough. Values share parts, so a small
// expression can make one that takes forever to walk through.
func (m *meter) weigh(v ref.Val, perStep int) bool {
	m.left -= 2 + length(v)/perStep
	container, isMap := v.(traits.Mapper)
	iterable, isContainer := v.(traits.Iterable)
	if m.exceeded() || !isContainer {
		return !m.exceeded()
	}
	for it := iterable.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		if isMap {
			m.left -= length(next) / perStep
			next = container.Get(next)
		}
		if !m.weigh(next, perStep) {
			return false
		}
	}
	return true
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

func contains(args ...ref.Val) ref.Val {
	if container, ok := args[1].(traits.Container); ok {
		return container.Contains(args[0])
	}
	return types.MaybeNoSuchOverloadErr(args[1])
}

func add(args ...ref.Val) ref.Val {
	if adder, ok := args[0].(traits.Adder); ok {
		return adder.Add(args[1])
	}
	return types.MaybeNoSuchOverloadErr(args[0])
}

// matches compiles a pattern. The function limits the product of characters and instructions, because each pair may
// take a step.
func (m *meter) matches(arg any) (func(args ...ref.Val) ref.Val, error) {
	constant, isConstant := arg.(interpreter.InterpretableConst)
	if !isConstant {
		return nil, errLiteral
	}
	instructions, err := patternSize(constant.Value())
	if err != nil {
		return nil, err
	}
	pattern, _ := constant.Value().(types.String)
	compiled, err := regexp.Compile(string(pattern))
	return func(args ...ref.Val) ref.Val {
		text, isText := args[0].(types.String)
		if !isText {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		m.left -= instructions * (1 + len(text))
		if m.exceeded() {
			return errExceeded
		}
		return types.Bool(compiled.MatchString(string(text)))
	}, err
}
