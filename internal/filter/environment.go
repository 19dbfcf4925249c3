package filter

import (
	"fmt"
	"sync"
	_ "time/tzdata" // event.time.getHours("Europe/Berlin") means the same in an image without zone files

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

const (
	// maxNesting is how many loops may stand in one another.
	maxNesting = 4
	// maxDepth is how deep an expression may be nested.
	maxDepth = 64
)

// environment is the language of filters. It is made once: that takes a few milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	p, err := newProvider()
	if err != nil {
		return nil, fmt.Errorf("make the types of filters: %w", err)
	}
	env, err := cel.NewEnv(
		cel.CustomTypeProvider(p),
		cel.Variable(eventVariable, cel.ObjectType(eventTypeName)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.OptionalTypes(cel.OptionalTypesVersion(0)),
		ext.Strings(ext.StringsVersion(4)),
		matchesFunction(),
		// No macro that makes values of other values: see checker.
		cel.ClearMacros(),
		cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro, cel.FilterMacro, matchesMacro),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateComprehensionNestingLimit(maxNesting),
		),
		cel.ParserRecursionLimit(maxDepth),
	)
	if err != nil {
		return nil, fmt.Errorf("make the language of filters: %w", err)
	}
	return env, nil
})
