package filter

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
)

// places gives where each part of an expression begins.
type places map[int64]place

// place is a line and a column, from 1.
type place struct{ line, column uint16 }

func placesOf(a *cel.Ast) places {
	info := a.NativeRep().SourceInfo()
	p := make(places, len(info.OffsetRanges()))
	for id := range info.OffsetRanges() {
		at := info.GetStartLocation(id)
		p[id] = place{uint16(at.Line()), uint16(at.Column() + 1)} // an expression is shorter than 65536
	}
	return p
}

// at is "at 1:7: ", or nothing where the part has no place of its own.
func (p places) at(id int64) string {
	at, ok := p[id]
	if !ok {
		return ""
	}
	return fmt.Sprintf("at %d:%d: ", at.line, at.column)
}

// maxIssues is how many faults of an expression are told at once.
const maxIssues = 3

// plainer says in other words what CEL's own leave unclear.
var plainer = strings.NewReplacer(
	"comprehension exceeds nesting limit", fmt.Sprintf("loops may stand %d deep in one another", maxNesting),
	"max recursion depth exceeded", tooDeep,
	"expression recursion limit exceeded: "+strconv.Itoa(maxDepth), tooDeep,
	" (in container '')", "",
)

const tooDeep = "the expression is nested too deep, or joins too many parts by one operator"

// compileError words what CEL found.
func compileError(issues *cel.Issues) error {
	var words []string
	for _, e := range issues.Errors() {
		if len(words) == maxIssues {
			words = append(words, "and more")
			break
		}
		message := strings.TrimPrefix(e.Message, "Syntax error: ")
		message, _, _ = strings.Cut(plainer.Replace(message), "\n")
		if e.Location.Line() > 0 {
			message = fmt.Sprintf("at %d:%d: %s", e.Location.Line(), e.Location.Column()+1, message)
		}
		words = append(words, message)
	}
	if len(words) == 0 {
		return errors.New("the expression can't be read")
	}
	return errors.New(strings.Join(words, "; "))
}

// typeWords names a type.
func typeWords(t *types.Type) string {
	switch t.Kind() {
	case types.StringKind:
		return "a text"
	case types.IntKind, types.UintKind, types.DoubleKind:
		return "a number"
	case types.ListKind:
		return "a list"
	case types.MapKind:
		return "a map"
	}
	return "a value of type " + t.String()
}

var (
	// missing finds the name in CEL's words for a member that is not there.
	missing = regexp.MustCompile(`^no such key: ([A-Za-z_][A-Za-z0-9_-]{0,63})$`)
	// known are CEL's words that can be passed on, and how.
	known = []struct{ text, words string }{
		{"no such key", "a member that it names is missing; guard it with has() or .?"},
		{"no such overload", "an operator or function got values of types that it does not take"},
		{"unknown time zone", "there is no time zone of that name"},
		{"index out of range", "a position lies outside of a text"},
		{"index out of bounds", "a list is too short for an index"},
		{"division by zero", "division by zero"},
		{"modulus by zero", "division by zero"},
		{"overflow", "a number is out of range"},
		{"range error", "a number is out of range"},
		{"optional.none() dereference", "an optional value is missing; use orValue()"},
		{"expected iterable", "a loop runs over something that is neither a list nor a map"},
		{"unsupported index", "an index is of the wrong type"},
		{"invalid", "a text can't be read as what it is converted to"},
		{"conversion error", "a value can't be converted to another type"},
	}
)

// evalError words why an evaluation failed. CEL's own words may hold parts of the event, so that only those are passed on
// that are known, and of names only one that stands in the expression.
func (f *Filter) evalError(err error) error {
	place := ""
	var fault *types.Err
	if errors.As(err, &fault) {
		place = f.places.at(fault.NodeID())
	}
	return errors.New(place + f.evalWords(err))
}

func (f *Filter) evalWords(err error) string {
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.ContextCancelled:
		return "the evaluation took too long"
	case errors.As(err, &cancelled):
		return fmt.Sprintf("the evaluation costs more than %d for this event; look at less of it", CostLimit)
	case errors.Is(err, errData):
		return errData.Error()
	case errors.Is(err, errNoTime):
		return errNoTime.Error()
	}
	text := err.Error()
	if m := missing.FindStringSubmatch(text); len(m) == 2 && strings.Contains(f.expression, m[1]) {
		return fmt.Sprintf("%s is missing; guard it with has() or .?", m[1])
	}
	for _, k := range known {
		if strings.Contains(text, k.text) {
			return k.words
		}
	}
	return "it can't be evaluated for this event"
}
