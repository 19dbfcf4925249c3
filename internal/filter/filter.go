package filter

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"

	"github.com/doorstep-dev/doorstep/internal/event"
)

// Bounds of an expression.
const (
	// MaxBytes is how long an expression may be.
	MaxBytes = 4096
	// CostLimit is what one evaluation may spend: one for each look at a value and each element that is compared, more
	// for long texts. It is about a tenth of a second.
	CostLimit = 1_000_000
	// maxTime ends an evaluation that the machine has no time for. CostLimit comes long before it.
	maxTime = 10 * time.Second
)

// Filter is a compiled expression. It is safe for concurrent use.
type Filter struct {
	expression string
	program    cel.Program
	places     places
}

// String is the expression.
func (f *Filter) String() string { return f.expression }

// Compile reads an expression. An error says in plain words what is wrong and where; it is about the expression alone.
// The same text is compiled once, as long as it is in use.
func Compile(expression string) (*Filter, error) { return compiled.get(expression) }

func compile(expression string) (*Filter, error) {
	switch {
	case strings.TrimSpace(expression) == "":
		return nil, errors.New("the expression is empty")
	case len(expression) > MaxBytes:
		return nil, fmt.Errorf("the expression is longer than %d bytes; write a shorter one", MaxBytes)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, compileError(issues)
	}
	f := &Filter{expression: expression, places: placesOf(checked)}
	c := checker{ast: checked.NativeRep(), places: f.places}
	if err := c.check(env, checked); err != nil {
		return nil, err
	}
	f.program, err = env.Program(checked, cel.CustomDecoratorV2(metered), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, fmt.Errorf("the expression can't be made a program: %w", err)
	}
	return f, nil
}

// Match reports whether the event passes. An error means that the expression can't be evaluated for it, and says why
// without repeating any of it.
func (f *Filter) Match(e *event.Event) (bool, error) { return f.MatchInput(NewInput(e)) }

// MatchInput is Match for an event that several filters are asked about: what one of them had decoded serves the others.
func (f *Filter) MatchInput(in *Input) (bool, error) {
	return f.evaluate(in, CostLimit, time.Now().Add(maxTime))
}

func (f *Filter) evaluate(in *Input, units int, until time.Time) (bool, error) {
	in.start(units, until)
	out, _, err := f.program.Eval(in)
	if err != nil {
		return false, f.evalError(err)
	}
	pass, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("the expression gives neither true nor false")
	}
	return pass, nil
}
