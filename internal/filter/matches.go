package filter

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// text.matches(pattern) takes a pattern that is written out, so that it is compiled once and its size is known. CEL's own
// takes patterns from the event, and some hundred bytes of pattern make a program of gigabytes.
const (
	matchesName = "@matches"
	// maxPattern is how many instructions a pattern may become.
	maxPattern = 1000
)

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
				return types.NewErr("the pattern of matches() was not compiled") // newMatch stands in for this
			})))
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
