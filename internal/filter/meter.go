package filter

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// The meter counts what an evaluation costs. CEL has one of its own, which can't be used: it adds up what a step cost
// after the step, takes some for free whose time grows with their operands (the size of a text, the comparison of nested
// lists), and looks through all earlier values at each step, so that a loop over 100,000 elements takes seconds. This one
// is asked where a value is made, and before what may take long.
//
// A unit is about 100 ns, the time of one look at a value.
const (
	// scannedPerUnit is how many bytes of a text are looked through in that time, madePerUnit how many are made.
	scannedPerUnit = 64
	madePerUnit    = 10
	// containerUnits is what a list or map costs to be compared, beside its members.
	containerUnits = 8
	// writtenPerUnit is how many members of a list or map that is written out are put together in that time.
	writtenPerUnit = 3
	// zoneUnits is what it costs to look up a time zone.
	zoneUnits = 500
	// clockUnits is how much is spent between two looks at the clock.
	clockUnits = 10_000
)

// start gives an evaluation its means.
func (in *Input) start(units int, until time.Time) {
	in.left, in.clock, in.until = units, units-clockUnits, until
}

// spend takes units from the evaluation that a frame belongs to, and ends it when there is no more: the panic is one that
// CEL turns into an error.
func spend(frame *interpreter.ExecutionFrame, units int) {
	v, _ := frame.ResolveName(eventVariable)
	in, ok := v.(*Input)
	if !ok {
		return // a constant is made ahead of any evaluation
	}
	in.left -= units
	if in.left < 0 {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "the cost limit is exceeded"})
	}
	if in.left < in.clock {
		in.clock = in.left - clockUnits
		if time.Now().After(in.until) {
			panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: "the time is up"})
		}
	}
}

// metered puts the meter into each part of a program (interpreter.InterpretableDecoratorV2).
func metered(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch n := i.(type) {
	case *meteredAttribute, *meteredCall, *meteredConstructor, *equality, *membership, *match, interpreter.InterpretableConst:
		return i, nil
	case interpreter.InterpretableAttribute:
		return &meteredAttribute{n}, nil
	case interpreter.InterpretableCall:
		return meterCall(n)
	case interpreter.InterpretableConstructor:
		return meterConstructor(n), nil
	}
	return i, nil // loops, && and || cost what is in them
}

func meterCall(n interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	args := n.Args()
	switch name := n.Function(); {
	case name == operators.Equals, name == operators.NotEquals:
		return &equality{InterpretableCall: n, left: args[0], right: args[1], not: name == operators.NotEquals}, nil
	case name == operators.In:
		return &membership{InterpretableCall: n, element: args[0], container: args[1]}, nil
	case name == matchesName:
		return newMatch(n)
	case strings.HasPrefix(name, "get") && len(args) == 2:
		return &meteredCall{n, zoneUnits}, nil
	}
	return &meteredCall{n, 1}, nil
}

// meteredAttribute is a name with what is selected of it.
type meteredAttribute struct {
	interpreter.InterpretableAttribute
}

// Exec counts the text that is looked at, since whatever is done with it looks through it.
func (a *meteredAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := a.InterpretableAttribute.Exec(frame)
	spend(frame, 1+textBytes(v)/scannedPerUnit)
	return v
}

// Eval is Exec.
func (a *meteredAttribute) Eval(vars interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(vars))
}

// meteredCall is a call whose cost is that of its result.
type meteredCall struct {
	interpreter.InterpretableCall
	units int
}

// Exec counts what was made: no function here makes more than its operands weigh.
func (c *meteredCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableCall.Exec(frame)
	units := c.units + textBytes(v)/madePerUnit
	if c.Function() == operators.Add {
		units += joined(v)
	}
	spend(frame, units)
	return v
}

// Eval is Exec.
func (c *meteredCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// meteredConstructor is a list or map that is written out, and made anew each time.
type meteredConstructor struct {
	interpreter.InterpretableConstructor
	units int
}

// meterConstructor leaves alone what holds constants only: that is made once, ahead of any evaluation.
func meterConstructor(n interpreter.InterpretableConstructor) interpreter.InterpretableV2 {
	members := n.InitVals()
	constant := func(m interpreter.InterpretableV2) bool { _, is := m.(interpreter.InterpretableConst); return is }
	if !slices.ContainsFunc(members, func(m interpreter.InterpretableV2) bool { return !constant(m) }) {
		return n
	}
	return &meteredConstructor{n, 1 + len(members)/writtenPerUnit}
}

// Exec counts the members ahead, whatever each of them costs.
func (c *meteredConstructor) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	spend(frame, c.units)
	return c.InterpretableConstructor.Exec(frame)
}

// Eval is Exec.
func (c *meteredConstructor) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// joined is what it costs to make a list of two: as much as it is long. The one that filter() makes grows in place.
func joined(v ref.Val) int {
	if _, own := v.(traits.MutableLister); own {
		return containerUnits
	}
	if l, ok := v.(traits.Lister); ok {
		n, _ := l.Size().(types.Int)
		return int(n)
	}
	return 0
}

// equality is == and !=.
type equality struct {
	interpreter.InterpretableCall
	left, right interpreter.InterpretableV2
	not         bool
}

// Exec compares as CEL does, once it is known what that costs.
func (e *equality) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	left := e.left.Exec(frame)
	right := e.right.Exec(frame)
	if types.IsUnknownOrError(left) {
		return left
	}
	if types.IsUnknownOrError(right) {
		return right
	}
	spend(frame, 1+lighter(left, right))
	return types.Bool((types.Equal(left, right) == types.True) != e.not)
}

// Eval is Exec.
func (e *equality) Eval(vars interpreter.Activation) ref.Val {
	return e.Exec(interpreter.AsFrame(vars))
}

// membership is in.
type membership struct {
	interpreter.InterpretableCall
	element, container interpreter.InterpretableV2
}

// Exec looks for the element as CEL does, once it is known what that costs: at most as much as all elements weigh.
func (m *membership) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	element := m.element.Exec(frame)
	if types.IsUnknownOrError(element) {
		return element
	}
	container := m.container.Exec(frame)
	if types.IsUnknownOrError(container) {
		return container
	}
	units := 1
	if _, isMap := container.(traits.Mapper); !isMap {
		units += weight(container, CostLimit)
	}
	spend(frame, units)
	if c, ok := container.(traits.Container); ok {
		return types.LabelErrNode(m.ID(), c.Contains(element))
	}
	return types.NewErrWithNodeID(m.ID(), "no such overload")
}

// Eval is Exec.
func (m *membership) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// match is text.matches(pattern).
type match struct {
	interpreter.InterpretableCall
	text    interpreter.InterpretableV2
	pattern *regexp.Regexp
	size    int
}

func newMatch(n interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	args := n.Args()
	literal, _ := args[1].(interpreter.InterpretableConst) // matchesMacro made it so
	text, _ := literal.Value().(types.String)
	pattern, size, err := compilePattern(string(text))
	if err != nil {
		return nil, err
	}
	return &match{InterpretableCall: n, text: args[0], pattern: pattern, size: size}, nil
}

// Exec matches once it is known what that costs.
func (m *match) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.text.Exec(frame)
	if types.IsUnknownOrError(v) {
		return v
	}
	text, ok := v.(types.String)
	if !ok {
		return types.NewErrWithNodeID(m.ID(), "no such overload")
	}
	spend(frame, matchUnits(len(text), m.size))
	return types.Bool(m.pattern.MatchString(string(text)))
}

// Eval is Exec.
func (m *match) Eval(vars interpreter.Activation) ref.Val { return m.Exec(interpreter.AsFrame(vars)) }

func textBytes(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// lighter is the weight of the lighter of two values: no more of them is compared. The heavier one is not weighed to its
// end.
func lighter(a, b ref.Val) int {
	for limit := 64; ; limit = min(limit*64, CostLimit) {
		n := min(weight(a, limit), weight(b, limit))
		if n < limit || limit == CostLimit {
			return n
		}
	}
}

// weight is what it costs to compare a value with everything in it, counted up to limit.
func weight(v ref.Val, limit int) int {
	switch v := v.(type) {
	case types.String:
		return min(limit, 1+len(v)/scannedPerUnit)
	case types.Bytes:
		return min(limit, 1+len(v)/scannedPerUnit)
	case *types.Optional:
		if v.HasValue() {
			return weight(v.GetValue(), limit)
		}
	case traits.Lister, traits.Mapper:
		return nativeWeight(v.Value(), limit)
	}
	return min(limit, 1)
}

// nativeWeight is weight for what a list or map is made of.
func nativeWeight(v any, limit int) int {
	total := 1
	switch v := v.(type) {
	case string:
		total += len(v) / scannedPerUnit
	case []byte:
		total += len(v) / scannedPerUnit
	case ref.Val:
		return weight(v, limit)
	case []any:
		total += containerUnits
		for _, element := range v {
			if total >= limit {
				break
			}
			total += nativeWeight(element, limit-total)
		}
	case map[string]any:
		total += containerUnits
		for name, member := range v {
			if total >= limit {
				break
			}
			total += 1 + len(name)/scannedPerUnit + nativeWeight(member, limit-total)
		}
	case []ref.Val:
		total += containerUnits
		for _, element := range v {
			if total >= limit {
				break
			}
			total += weight(element, limit-total)
		}
	case map[ref.Val]ref.Val:
		total += containerUnits
		for name, member := range v {
			if total >= limit {
				break
			}
			total += weight(name, limit) + weight(member, limit-total)
		}
	}
	return min(limit, total)
}

// matchUnits is what it costs to match a text with a pattern of a size: the time of package regexp is at most in
// proportion to their product.
func matchUnits(text, size int) int {
	const stepsPerUnit = 10
	if text > math.MaxInt/maxPattern-1 {
		return math.MaxInt
	}
	return 1 + (text+1)*size/stepsPerUnit
}
