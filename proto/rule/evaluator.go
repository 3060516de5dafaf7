package rule

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/kv8s/curl-me-that/proto/process/budget"
)

const (
	// DefaultMaxBody is the default maximum size of a body in bytes.
	DefaultMaxBody = 256 << 10
	// deadline is the maximum duration of the evaluation of all expressions on a body.
	deadline = 100 * time.Millisecond
	// maxCost is the maximum cost of an expression, in units of CEL.
	maxCost = 1_000_000
	// interruptEvery is the number of iterations between checks of the deadline.
	interruptEvery = 16
)

// Cause says why an expression does not let a body pass.
type Cause int

const (
	// Passed means that the expression gave what it should.
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
)

// String returns the word for a rule with this outcome.
func (c Cause) String() string {
	return [...]string{"true", "false", "not applicable", "not JSON", "too costly", "too large"}[c]
}

// Outcome is the outcome of the expressions on a body.
type Outcome struct {
	// Rules has the outcome of each rule.
	Rules []Cause
	// Select is the outcome of the selection, and Selected the selected part of the body.
	Select   Cause
	Selected []byte
	// Wait is how long to wait for an evaluation, because the namespace has exceeded its budget.
	Wait time.Duration
}

// Failed returns the first rule that does not let the body pass, counted from 1, or 0 for the
// selection, and the cause; Passed if there is none.
func (o Outcome) Failed() (number int, cause Cause) {
	for i, cause := range o.Rules {
		if cause != Passed {
			return i + 1, cause
		}
	}
	return 0, o.Select
}

// Evaluator evaluates expressions. It is safe for concurrent use.
//
// It evaluates one body at a time, because the cost that CEL limits says nothing about memory. Each
// namespace has a budget of time, because callers wait for the evaluations of others. Calls whose
// duration or memory depends on their arguments are replaced by bounded ones, because CEL checks the
// deadline in loops only.
type Evaluator struct {
	// MaxBody is the maximum size of a body and of a selection in bytes; 0 means DefaultMaxBody.
	MaxBody int
	// Budget is the time in nanoseconds that a namespace may use; nil means no limit.
	Budget *budget.Budget

	mu       sync.Mutex
	programs cache[cel.Program]
	meter    meter
}

// Limit returns the maximum size of a body and of a selection in bytes.
func (e *Evaluator) Limit() int { return cmp.Or(e.MaxBody, DefaultMaxBody) }

// Evaluate evaluates the expressions of a key on a body; held is the number of bytes that the key
// has.
func (e *Evaluator) Evaluate(namespace string, s Set, body []byte, held int64) Outcome {
	o := Outcome{Rules: make([]Cause, len(s.Expect)), Selected: body}
	if len(body) > e.Limit() {
		for i := range o.Rules {
			o.Rules[i] = TooLarge
		}
		o.Select = TooLarge
		return o
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if short := e.Budget.Check(namespace); short != nil { // others of the namespace came first
		return Outcome{Wait: short.Wait}
	}
	began := time.Now()
	defer func() { e.Budget.Spend(namespace, int64(time.Since(began))) }()
	// Compiling takes more than the deadline on a busy machine, so it comes first.
	expect := make([]cel.Program, len(s.Expect))
	for i, text := range s.Expect {
		expect[i] = e.programs.get(expression{text, true}, e.program)
	}
	var selection cel.Program
	if s.Select != "" {
		selection = e.programs.get(expression{s.Select, false}, e.program)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	e.meter = meter{ctx: ctx}
	v := &variables{body: body, held: held}
	for i, program := range expect {
		var value ref.Val
		if value, o.Rules[i] = e.value(program, v); o.Rules[i] == Passed && value != types.True {
			o.Rules[i] = Inapplicable
			if value == types.False {
				o.Rules[i] = False
			}
		}
	}
	if s.Select != "" {
		var value ref.Val
		if value, o.Select = e.value(selection, v); o.Select == Passed {
			o.Selected, o.Select = encode(value, e.Limit())
		}
	}
	return o
}

// value evaluates one expression; nil is one that does not compile.
func (e *Evaluator) value(program cel.Program, v *variables) (ref.Val, Cause) {
	if program == nil {
		return nil, Inapplicable
	}
	v.notJSON, e.meter.work = false, 0
	value, _, err := program.ContextEval(e.meter.ctx, v)
	var cancelled interpreter.EvalCancelledError
	switch {
	case err == nil:
		return value, Passed
	case e.meter.exceeded(), errors.As(err, &cancelled):
		return nil, Costly
	case v.notJSON:
		return nil, NotJSON
	}
	return nil, Inapplicable
}

// program compiles an expression; nil if it has a mistake.
func (e *Evaluator) program(of expression) cel.Program {
	ast, err := compile(of)
	if err != nil {
		return nil
	}
	env, err := environment()
	if err != nil {
		return nil
	}
	// Options that track state or cost would switch the limit off.
	program, err := env.Program(ast, cel.CustomDecoratorV2(e.meter.bound), cel.CostLimit(maxCost),
		cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil
	}
	return program
}

// variables resolves the variables of expressions on one body.
type variables struct {
	body []byte
	held int64
	// text and json are made when an expression reads them; notJSON reports that it read json and
	// the body is not JSON.
	text, json ref.Val
	notJSON    bool
}

// ResolveName implements interpreter.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case "body":
		if v.text == nil {
			v.text = types.Bytes(v.body)
			if utf8.Valid(v.body) {
				v.text = types.String(v.body)
			}
		}
		return v.text, true
	case "json":
		if v.json == nil {
			v.json = decode(v.body)
		}
		v.notJSON = v.notJSON || types.IsError(v.json)
		return v.json, true
	case "heldSize":
		return types.Int(v.held), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (*variables) Parent() interpreter.Activation { return nil }
