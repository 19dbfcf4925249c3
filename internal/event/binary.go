package event

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

const headerPrefix = "ce-"

// cutPrefix returns what follows "ce-" in a header's name, whatever its case.
func cutPrefix(name string) (rest string, ok bool) {
	if len(name) < len(headerPrefix) || name[0]|0x20 != 'c' || name[1]|0x20 != 'e' || name[2] != '-' {
		return "", false
	}
	return name[len(headerPrefix):], true
}

func hasCloudEventHeader(header http.Header) bool {
	for name := range header {
		if _, ok := cutPrefix(name); ok {
			return true
		}
	}
	return false
}

// parseBinary reads a CloudEvent from its ce-* headers; the body is its data, of whatever kind.
func parseBinary(e *Event, header http.Header) (dataschema string, err *Error) {
	if e.Headers, err = cloudEventHeaders(header); err != nil {
		return "", err
	}
	var specversion, moment string
	var seen seenHeaders
	for _, h := range e.Headers {
		value, fault := decodeHeaderValue(h.Value)
		if fault != "" {
			return "", badRequest(h.Name, fault)
		}
		attribute := h.Name[len(headerPrefix):]
		switch attribute {
		case "specversion":
			specversion, seen.specversion = value, true
		case "id":
			e.ID, seen.id = value, true
		case "source":
			e.Source, seen.source = value, true
		case "type":
			e.Type, seen.typ = value, true
		case "time":
			moment, seen.time = value, true
		case "subject", "dataschema":
			if value == "" {
				return "", empty(h.Name)
			}
			if attribute == "subject" {
				e.Subject = value
			} else {
				dataschema = value
			}
			e.Attributes = append(e.Attributes, Attribute{Name: attribute, Value: value})
		default:
			e.Attributes = append(e.Attributes, Attribute{Name: attribute, Value: value})
		}
	}
	if err := seen.check(); err != nil {
		return "", err
	}
	if specversion != specVersion {
		return "", badSpecVersion(headerPrefix + "specversion")
	}
	if e.Source == "" {
		return "", empty(headerPrefix + "source")
	}
	if err := e.checkIdentity(headerPrefix); err != nil {
		return "", err
	}
	if seen.time {
		if e.Time, err = parseTime(headerPrefix+"time", moment); err != nil {
			return "", err
		}
	}
	return dataschema, sortAttributes(e.Attributes, headerPrefix)
}

// seenHeaders remembers which headers came, since an empty one differs from a missing one.
type seenHeaders struct{ specversion, id, source, typ, time bool }

func (s seenHeaders) check() *Error {
	switch {
	case !s.specversion:
		return missingHeader("specversion")
	case !s.id:
		return missingHeader("id")
	case !s.source:
		return missingHeader("source")
	case !s.typ:
		return missingHeader("type")
	}
	return nil
}

func missingHeader(attribute string) *Error {
	return badRequest(headerPrefix+attribute, "A CloudEvent in binary mode needs this header; send it with a non-empty value.")
}

// cloudEventHeaders returns the ce-* headers sorted by name, each once, with values that can be sent on.
func cloudEventHeaders(header http.Header) ([]Header, *Error) {
	var list []Header
	for key, values := range header {
		attribute, ok := cutPrefix(key)
		if !ok {
			continue
		}
		name := lowerHeaderName(key, attribute)
		attribute = name[len(headerPrefix):]
		switch {
		case attribute == "datacontenttype":
			return nil, badRequest(name, "In binary mode the Content-Type header says this; leave the header out.")
		case !validAttributeName(attribute):
			return nil, badAttributeName(headerPrefix)
		case attribute == "data":
			return nil, badRequest(name, "An attribute can't be named data; in binary mode the body is the data.")
		case len(values) > 1:
			return nil, duplicate(name)
		case len(values) == 0:
			continue
		case hasControl(values[0]):
			return nil, badRequest(name, "The header holds a control character; percent-encode it.")
		}
		list = append(list, Header{Name: name, Value: values[0]})
	}
	slices.SortFunc(list, func(a, b Header) int { return cmp.Compare(a.Name, b.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return nil, duplicate(list[i].Name)
		}
	}
	return list, nil
}

// lowerHeaderName returns a ce-* header's name in lower case, without an allocation for those that each event has.
func lowerHeaderName(key, attribute string) string {
	switch attribute {
	case "Id":
		return "ce-id"
	case "Source":
		return "ce-source"
	case "Type":
		return "ce-type"
	case "Specversion":
		return "ce-specversion"
	case "Time":
		return "ce-time"
	case "Subject":
		return "ce-subject"
	}
	return strings.ToLower(key)
}

// decodeHeaderValue decodes a header's value as CloudEvents 1.0 (HTTP binding, 3.1.3.2) says: first a quoted string,
// then exactly one round of percent-decoding; what comes out must be UTF-8. fault is a sentence, empty when all is well.
func decodeHeaderValue(value string) (decoded, fault string) {
	decoded, ok := unquote(value)
	if !ok {
		return "", "The quoted string is malformed; end it with a double quote and escape only quotes and backslashes."
	}
	if strings.IndexByte(decoded, '%') >= 0 {
		if decoded, ok = percentDecode(decoded); !ok {
			return "", "A percent sign is not followed by two hexadecimal digits; write a percent sign as %25."
		}
	}
	if !utf8.ValidString(decoded) {
		return "", "The value is not UTF-8; percent-encode its characters as UTF-8."
	}
	return decoded, ""
}

// unquote returns what a quoted string (RFC 9110, 5.6.4) stands for, and any other value as it is.
func unquote(value string) (string, bool) {
	if value == "" || value[0] != '"' {
		return value, true
	}
	if len(value) < 2 || value[len(value)-1] != '"' {
		return "", false
	}
	inner := value[1 : len(value)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner, strings.IndexByte(inner, '"') < 0
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		if c == '"' {
			return "", false
		}
		if c == '\\' {
			if i++; i == len(inner) {
				return "", false // the last quote was an escaped one
			}
			c = inner[i]
		}
		out = append(out, c)
	}
	return string(out), true
}

func percentDecode(value string) (string, bool) {
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '%' {
			if len(value)-i < 3 {
				return "", false
			}
			high, ok1 := hexDigit(value[i+1])
			low, ok2 := hexDigit(value[i+2])
			if !ok1 || !ok2 {
				return "", false
			}
			c = high<<4 | low
			i += 2
		}
		out = append(out, c)
	}
	return string(out), true
}
