package rule

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/kv8s/curl-me-that/proto/budget"
)

const (
	// MaxBody is the maximum size of a body and of a selection in bytes.
	MaxBody = 256 << 10
	// deadline is the maximum CPU time of the evaluation of all expressions on a body, and patience its maximum duration
	// while other programs use the CPU.
	deadline, patience = 100 * time.Millisecond, 5 * deadline
	// maxCost is the maximum cost of an expression, in units of CEL.
	maxCost = 1_000_000
	// interruptEvery is the number of iterations between checks of the deadline. One may take milliseconds.
	interruptEvery = 1
)

// Cause says why an expression does not let a body pass.
type Cause int

const (
	// Passed means that the rule is true, or that the selection gave a value.
	Passed Cause = iota
	// False means that a rule gave false.
	False
	// Inapplicable means that the expression cannot be evaluated on this body.
	Inapplicable
	// NotJSON means that the expression reads json, and the body is not JSON.
	NotJSON
	// Costly means that the evaluation exceeded a limit.
	Costly
	// TooLarge means that the body, or the selected part of it, is too large.
	TooLarge
	// NotCertificates means that a text for certs has something other than certificates in PEM and blanks.
	NotCertificates
	// BadCertificate means that a certificate in a text for certs is incomplete or invalid.
	BadCertificate
)

// String returns the word for a rule with this cause.
func (c Cause) String() string {
	return [...]string{
		"true", "false", "not applicable", "not JSON", "too costly", "too large", "not only certificates",
		"not a valid certificate",
	}[c]
}

// Evaluation is the result of evaluating the expressions of a key on a body.
type Evaluation struct {
	// Expressions has the cause of each rule, then that of the selection.
	Expressions []Evaluated
	// Selected is the selected part of the body, or the body without a selection.
	Selected []byte
	// Wait is how long to wait for an evaluation, because the namespace has exceeded its budget.
	Wait time.Duration
}

// Evaluated is an expression with its cause.
type Evaluated struct {
	Expression

	Cause Cause
}

// Failed returns the first rule that does not let the body pass, counted from 1, or 0 for the
// selection, and the cause; Passed if there is none.
func (e Evaluation) Failed() (number int, cause Cause) {
	i := slices.IndexFunc(e.Expressions, func(x Evaluated) bool { return x.Cause != Passed })
	switch {
	case i < 0:
		return 0, Passed
	case e.Expressions[i].IsRule:
		number = i + 1
	}
	return number, e.Expressions[i].Cause
}

// Evaluator evaluates expressions. It is safe for concurrent use.
//
// It evaluates one body at a time, because CEL does not limit memory. Each namespace has a budget of
// time, compilation included, because callers wait for the evaluations of others. Calls whose time or memory
// depends on their arguments are replaced by bounded ones, because CEL checks the deadline only in loops.
type Evaluator struct {
	// Budget is the time in nanoseconds that a namespace may use (nil means no limit).
	Budget *budget.Budget
	// Now gives the time of the check (nil means time.Now).
	Now func() time.Time

	mu       sync.Mutex
	programs cache[cel.Program]
	meter    meter
}

// Evaluate evaluates the expressions of a key on a body until ctx is done; held is the size of the key's value
// in bytes.
func (e *Evaluator) Evaluate(ctx context.Context, namespace string, s Set, body []byte, held int64) Evaluation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if short := e.Budget.Check(namespace); short != nil { // other keys of the namespace have used it
		return Evaluation{Wait: short.Wait}
	}
	began := time.Now()
	defer func() { e.Budget.Spend(namespace, int64(time.Since(began))) }()
	expressions := s.expressions()
	programs := make([]cel.Program, len(expressions))
	for i, x := range expressions { // before the deadline, because a cache may save it
		programs[i] = e.programs.get(x, e.program)
	}
	now := e.Now
	if now == nil {
		now = time.Now
	}
	ctx, cancel := withDeadline(ctx, cpu)
	defer cancel()
	e.meter = meter{ctx: ctx}
	o, variables := Evaluation{Selected: body}, map[string]any{
		"body": sync.OnceValue(func() ref.Val {
			if utf8.Valid(body) {
				return types.String(body)
			}
			return types.Bytes(body)
		}),
		"json":     sync.OnceValue(func() ref.Val { return decode(body) }),
		"heldSize": held,
		"now":      now().UTC(),
	}
	for i, x := range expressions {
		value, cause := ref.Val(nil), TooLarge
		if len(body) <= MaxBody {
			value, cause = e.value(programs[i], variables)
		}
		switch {
		case cause != Passed:
		case !x.IsRule:
			o.Selected, cause = e.meter.encode(value)
		case value == types.False:
			cause = False
		case value != types.True:
			cause = Inapplicable
		}
		o.Expressions = append(o.Expressions, Evaluated{x, cause})
	}
	return o
}

// cpu returns the CPU time of this process. An evaluation uses at most as much.
func cpu() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// withDeadline returns a context that ends when the deadline is used up, or after patience.
func withDeadline(ctx context.Context, cpu func() time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	end := cpu() + deadline
	var check func()
	check = func() {
		if left := end - cpu(); left > 0 && ctx.Err() == nil {
			time.AfterFunc(max(left, time.Millisecond), check)
			return
		}
		cancel()
	}
	first := time.AfterFunc(deadline, check)
	return ctx, func() { first.Stop(); cancel() } // most evaluations end much earlier
}

// value evaluates one expression. The program is nil if the expression does not compile.
func (e *Evaluator) value(program cel.Program, variables map[string]any) (ref.Val, Cause) {
	if program == nil {
		return nil, Inapplicable
	}
	e.meter.left = maxWork
	value, _, err := program.ContextEval(e.meter.ctx, variables)
	var cancelled interpreter.EvalCancelledError
	switch {
	case e.meter.exceeded(), errors.As(err, &cancelled):
		return nil, Costly
	case err == nil:
		return value, Passed
	case errors.Is(err, errJSON):
		return nil, NotJSON
	case errors.Is(err, errNotCertificates):
		return nil, NotCertificates
	case errors.Is(err, errBadCertificate):
		return nil, BadCertificate
	}
	return nil, Inapplicable
}

// program compiles an expression (nil if it has a mistake).
func (e *Evaluator) program(of Expression) (program cel.Program) {
	ast, err := compile(of)
	if err == nil {
		// Options that track state or cost would disable the limit.
		program, err = environment().Program(ast, cel.CustomDecoratorV2(e.meter.bound), cel.CostLimit(maxCost),
			cel.InterruptCheckFrequency(interruptEvery))
	}
	if err != nil {
		return nil
	}
	return program
}
