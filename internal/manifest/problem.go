package manifest

import (
	"cmp"
	"fmt"
	"strings"
)

// Problem is one thing wrong with a manifest, or a note about one.
type Problem struct {
	// File is the path as it was given, with what the walk adds; Line is 1-based,
	// and 0 where the problem is not in a line.
	File string
	Line int
	// Kind, Namespace and Name are those of the object, as far as they are known.
	Kind, Namespace, Name string
	// Field is the path of the field, such as spec.signing.keys[0].name; it may be empty.
	Field string
	// Message is one sentence that tells the way out.
	Message string
	// Kept is set where the object's former version stays in force.
	Kept bool
}

// String is file:line: kind namespace/name: field: message, without the parts that
// are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Kind != "" {
		b.WriteString(p.Kind)
		if p.Name != "" {
			b.WriteString(" " + p.Namespace + "/" + p.Name)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Kept {
		b.WriteString(" (the former version stays in force)")
	}
	return b.String()
}

func compareProblems(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
}
