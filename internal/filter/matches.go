package filter

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// text.matches(pattern) takes a pattern that is written out, so that it is compiled once and its size is known. CEL's own
// takes patterns from the event, and some hundred bytes of pattern make a program of gigabytes.
const (
	matchesName = "@matches"
	// maxPattern is how many instructions a pattern may become.
	maxPattern = 1000
	// maxSteps bounds one call: the bytes of the text times the instructions of the pattern.
	maxSteps = 4_000_000
	// stepsPerUnit is how many of these cost as much as one look at a value.
	stepsPerUnit = 10
)

func matchSteps(text, pattern int) uint64 { return uint64(text+1) * uint64(pattern+1) }

// matchesMacro makes text.matches('…') a call of matchesName.
var matchesMacro = cel.ReceiverMacro("matches", 1, func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	if args[0].Kind() == ast.LiteralKind && args[0].AsLiteral().Type() == types.StringType {
		return f.NewCall(matchesName, target, args[0]), nil
	}
	return nil, f.NewError(args[0].ID(), "the pattern of matches() must be written out between quotes")
})

func matchesFunction() cel.EnvOption {
	return cel.Function(matchesName,
		cel.Overload(matchesName+"_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(text, pattern ref.Val) ref.Val {
				return types.NewErr("the pattern of matches() was not compiled") // matchesOptimization stands in for this
			})))
}

var errMatchTooLong = errors.New("the text is too long for this pattern of matches()")

var matchesOptimization = &interpreter.RegexOptimization{
	Function:   matchesName,
	RegexIndex: 1,
	Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		re, size, err := compilePattern(pattern)
		if err != nil {
			return nil, err
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(values ...ref.Val) ref.Val {
			text, ok := values[0].(types.String)
			if !ok {
				return types.NoSuchOverloadErr()
			}
			if matchSteps(len(text), size) > maxSteps {
				return types.WrapErr(errMatchTooLong)
			}
			return types.Bool(re.MatchString(string(text)))
		}), nil
	},
}

// compilePattern gives a pattern and how many instructions it has.
func compilePattern(pattern string) (*regexp.Regexp, int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("the pattern of matches() can't be read: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, fmt.Errorf("the pattern of matches() can't be read: %w", err)
	}
	if len(program.Inst) > maxPattern {
		return nil, 0, fmt.Errorf("the pattern of matches() has %d steps, and %d is the most; use smaller repetitions", len(program.Inst), maxPattern)
	}
	re, err := regexp.Compile(pattern)
	return re, len(program.Inst), err
}
