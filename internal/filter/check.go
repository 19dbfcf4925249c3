package filter

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	celchecker "github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// checker refuses what CEL takes and a filter may not hold. CEL alone counts what a step costs only after it was made,
// so that a few innocent steps can build a value whose next comparison runs for hours: x.map(y, [y, y]) over and over
// weighs twice as much each time, and text.replace("", text) squares it. Here no step makes more than its operands
// weigh: there is no map(), functions are those of a list, and lists and maps that are written out hold only scalars.
type checker struct {
	ast    *ast.AST
	places places
}

// functions are those a filter may call: each takes time and memory in proportion to its operands.
var functions = set(
	operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.In, operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
	operators.Index, operators.OptIndex, operators.OptSelect,
	"size", "bool", "bytes", "double", "duration", "int", "string", "timestamp", "type", "uint", "dyn",
	"startsWith", "endsWith", "contains", matchesName, "lowerAscii", "upperAscii", "trim", "substring", "charAt",
	"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes",
	"getMonth", "getSeconds",
	"hasValue", "value", "orValue", "or",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func (c *checker) check(env *cel.Env, checked *cel.Ast) error {
	if err := c.visit(c.ast.Expr()); err != nil {
		return err
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) {
		if out.Kind() == types.DynKind {
			return fmt.Errorf("the expression must give true or false, and what it gives depends on the event; compare it, as in … == true")
		}
		return fmt.Errorf("the expression must give true or false, but it gives %s; compare it with something", typeWords(out))
	}
	cost, err := env.EstimateCost(checked, noEstimates{})
	if err != nil {
		return fmt.Errorf("the cost of the expression can't be told: %w", err)
	}
	if cost.Min > CostLimit {
		return fmt.Errorf("the expression costs at least %d for any event, and %d is the most; take loops out of loops", cost.Min, CostLimit)
	}
	return nil
}

// visit walks the whole expression. Its depth is bounded by that of the parser.
func (c *checker) visit(e ast.Expr) error {
	switch e.Kind() {
	case ast.CallKind:
		return c.call(e)
	case ast.SelectKind:
		operand := e.AsSelect().Operand()
		if operand.Kind() == ast.IdentKind && operand.AsIdent() == eventVariable {
			return nil
		}
		return c.visit(operand)
	case ast.IdentKind:
		if e.AsIdent() == eventVariable {
			return c.fault(e, "event can't be used as a whole; name one of its members, as in event.type or has(event.time)")
		}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			if err := c.element(element); err != nil {
				return err
			}
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			if err := c.visit(entry.AsMapEntry().Key()); err != nil {
				return err
			}
			if err := c.element(entry.AsMapEntry().Value()); err != nil {
				return err
			}
		}
	case ast.StructKind:
		return c.fault(e, "a filter can't make objects")
	case ast.ComprehensionKind:
		return c.loop(e)
	}
	return nil
}

func (c *checker) call(e ast.Expr) error {
	call := e.AsCall()
	name := call.FunctionName()
	if !functions[name] {
		return c.fault(e, "%s() can't be used in a filter", strings.TrimPrefix(name, "@"))
	}
	if call.IsMemberFunction() {
		if err := c.visit(call.Target()); err != nil {
			return err
		}
	}
	args := call.Args()
	if name == matchesName {
		if _, _, err := compilePattern(string(args[1].AsLiteral().(types.String))); err != nil {
			return c.fault(args[1], "%s", err)
		}
	}
	for _, arg := range args {
		if err := c.visit(arg); err != nil {
			return err
		}
	}
	return nil
}

// element checks what stands in a list or map that is written out.
func (c *checker) element(e ast.Expr) error {
	switch e.Kind() {
	case ast.ListKind, ast.MapKind:
		return c.visit(e)
	}
	switch kind := c.ast.GetType(e.ID()); kind.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.BytesKind, types.TimestampKind,
		types.DurationKind, types.NullTypeKind:
		return c.visit(e)
	case types.DynKind:
		return c.fault(e, "a list or map can't hold parts of event.data as they are; name the type, as in string(event.data.x), or compare with == and ||")
	default:
		return c.fault(e, "a list or map can't hold %s here", typeWords(kind))
	}
}

// loop checks what exists, all, exists_one and filter became.
func (c *checker) loop(e ast.Expr) error {
	loop := e.AsComprehension()
	if loop.IterVar() == eventVariable {
		return c.fault(e, "the variable of a loop can't be called event")
	}
	step := loop.LoopStep()
	if loop.AccuInit().Kind() == ast.ListKind {
		// filter(x, p) is p ? result + [x] : result. The list in it is not one that was written out.
		step = step.AsCall().Args()[0]
	}
	for _, part := range []ast.Expr{loop.IterRange(), loop.LoopCondition(), step, loop.Result()} {
		if err := c.visit(part); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) fault(e ast.Expr, format string, args ...any) error {
	return fmt.Errorf("%s%s", c.places.at(e.ID()), fmt.Sprintf(format, args...))
}

// noEstimates leaves sizes to what the expression itself says: the least an event can cost.
type noEstimates struct{}

func (noEstimates) EstimateSize(celchecker.AstNode) *celchecker.SizeEstimate { return nil }

func (noEstimates) EstimateCallCost(string, string, *celchecker.AstNode, []celchecker.AstNode) *celchecker.CallEstimate {
	return nil
}
