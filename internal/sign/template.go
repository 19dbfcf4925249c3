package sign

import (
	"errors"
	"strings"
)

// template is text in which {id}, {timestamp} and {body} stand for those of a
// message: what is signed, or what stands before a signature.
type template []part

// part is fixed text, or where field is set, that of the message.
type part struct {
	text  string
	field field
}

type field byte

const (
	fixed field = iota
	fieldID
	fieldTimestamp
	fieldBody
)

var fieldNames = map[string]field{"{id}": fieldID, "{timestamp}": fieldTimestamp, "{body}": fieldBody}

// What the schemes of that name sign.
var (
	standardContent = template{{field: fieldID}, {text: "."}, {field: fieldTimestamp}, {text: "."}, {field: fieldBody}}
	gitHubContent   = template{{field: fieldBody}}
	stripeContent   = template{{field: fieldTimestamp}, {text: "."}, {field: fieldBody}}
)

var errTemplate = errors.New("only {id}, {timestamp} and {body} may stand in braces")

// parseTemplate reads a template; the only error is errTemplate.
func parseTemplate(s string) (template, error) {
	var t template
	for s != "" {
		open := strings.IndexAny(s, "{}")
		if open < 0 {
			return append(t, part{text: s}), nil
		}
		if open > 0 {
			t = append(t, part{text: s[:open]})
		}
		end := strings.IndexByte(s, '}')
		if end < open {
			return nil, errTemplate
		}
		f, ok := fieldNames[s[open:end+1]]
		if !ok {
			return nil, errTemplate
		}
		t = append(t, part{field: f})
		s = s[end+1:]
	}
	return t, nil
}

// count is how often a field stands in the template.
func (t template) count(f field) int {
	n := 0
	for i := range t {
		if t[i].field == f {
			n++
		}
	}
	return n
}

// text appends a template that has no {body}.
func (t template) text(dst []byte, id string, timestamp []byte) []byte {
	for i := range t {
		dst = t[i].append(dst, id, timestamp)
	}
	return dst
}

func (p *part) append(dst []byte, id string, timestamp []byte) []byte {
	switch p.field {
	case fieldID:
		return append(dst, id...)
	case fieldTimestamp:
		return append(dst, timestamp...)
	}
	return append(dst, p.text...)
}
