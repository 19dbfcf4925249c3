package event

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// member is one text member of an envelope as the scanner found it.
type member struct {
	text []byte // decoded; shares memory with the body where nothing had to be decoded
	seen bool
	null bool
}

// given reports whether the member is there with a value.
func (m *member) given() bool { return m.seen && !m.null }

// empty reports whether the member is given as an empty string.
func (m *member) empty() bool { return m.given() && len(m.text) == 0 }

// once marks a member as seen and refuses a second one.
func (m *member) once(field string) *Error {
	if m.seen {
		return duplicate(field)
	}
	m.seen = true
	return nil
}

// read reads the member's value, which must be a string, or null where nullable says so.
func (m *member) read(s *scanner, field string, nullable bool) *Error {
	if err := m.once(field); err != nil {
		return err
	}
	c := s.space()
	if c == 'n' && nullable {
		m.null = true
		if !s.literal("null") {
			return s.fault(field)
		}
		return nil
	}
	if c != '"' {
		if s.pos >= len(s.buf) {
			s.fail(s.pos, faultEnd)
			return s.fault(field)
		}
		return badRequest(field, "This must be a string; put the value in double quotes.")
	}
	var err *Error
	m.text, err = s.text(field)
	return err
}

// text reads a string whose opening quote is the next byte, decoded.
func (s *scanner) text(field string) ([]byte, *Error) {
	raw, escaped, ok := s.str()
	if !ok {
		return nil, s.fault(field)
	}
	if !escaped {
		return raw, nil
	}
	text, whole := decodeString(raw)
	if !whole {
		return nil, badRequest(field, "The string holds half of a surrogate pair, which is no character; send both halves or none.")
	}
	return text, nil
}

// fault words the scanner's fault as an error of field.
func (s *scanner) fault(field string) *Error {
	if s.why == faultEnd {
		field = fieldBody
	}
	return badRequest(field, fmt.Sprintf("Not JSON at byte %d: %s; send RFC 8259 JSON in UTF-8.", s.pos, s.why))
}

// next moves to the next member of the object whose opening brace was read, and past its colon. The name is decoded,
// and done says that the object has ended instead.
func (s *scanner) next(first bool) (name []byte, done bool, err *Error) {
	c := s.space()
	if c == '}' {
		s.pos++
		return nil, true, nil
	}
	if !first {
		if c != ',' {
			s.fail(s.pos, faultObjectEnd)
			return nil, false, s.fault(fieldBody)
		}
		s.pos++
		s.space()
	}
	name, escaped, ok := s.name()
	if !ok {
		return nil, false, s.fault(fieldBody)
	}
	if escaped {
		// A name with half a surrogate pair becomes one with U+FFFD, which is none that is known.
		name, _ = decodeString(name)
	}
	return name, false, nil
}

// skip passes over the value of a member.
func (s *scanner) skip(field string) *Error {
	if !s.value() {
		return s.fault(field)
	}
	return nil
}

// rawAttribute is an attribute as the scanner found it. One that is null is unset, and is kept to be seen twice.
type rawAttribute struct {
	name, value []byte
	null        bool
}

// attribute reads the value of an attribute named name, which the caller found valid, and adds it to list. prefix is put
// before the name in errors.
func (s *scanner) attribute(list []rawAttribute, name []byte, prefix string) ([]rawAttribute, *Error) {
	if len(list) >= maxAttributes {
		return list, tooManyAttributes(prefix)
	}
	a := rawAttribute{name: name}
	var err *Error
	switch c := s.space(); c {
	case '"':
		a.value, err = s.text(fieldAttributes)
	case '{', '[':
		err = badRequest(fieldAttributes, "An attribute is a string, a boolean or an integer; put objects and arrays in the data.")
	default:
		from := s.pos
		if !s.scalar(c) {
			err = s.fault(fieldAttributes)
			break
		}
		a.value, a.null = s.buf[from:s.pos], c == 'n'
		if number := c <= '9'; number && bytes.ContainsAny(a.value, ".eE") {
			err = badRequest(fieldAttributes, "A number in an attribute must be an integer in plain digits; send other numbers as strings.")
		}
	}
	if err != nil {
		if err.Field == fieldAttributes {
			err.Field = prefix + string(name)
		}
		return list, err
	}
	if list == nil {
		list = make([]rawAttribute, 0, 4)
	}
	return append(list, a), nil
}

const (
	fieldAttributes = "attributes"
	// attributesPrefix stands before the name of a plain event's attribute in errors; before a CloudEvent's stands
	// nothing in structured mode and headerPrefix in binary mode.
	attributesPrefix = fieldAttributes + "."
)

// attributesField names the place of all attributes whose names have a prefix in errors.
func attributesField(prefix string) string {
	switch prefix {
	case attributesPrefix:
		return fieldAttributes
	case headerPrefix:
		return headerPrefix + "*"
	}
	return fieldBody
}

func tooManyAttributes(prefix string) *Error {
	return badRequest(attributesField(prefix), fmt.Sprintf("There are more than %d attributes; send fewer and put the rest in the data.", maxAttributes))
}

// validAttributeName reports whether a name is 1 to 64 characters of a-z and 0-9 (CloudEvents 1.0, naming conventions).
func validAttributeName[T string | []byte](name T) bool {
	if len(name) == 0 || len(name) > maxAttributeNameBytes {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			return false
		}
	}
	return true
}

// badAttributeName does not say which name it is: it would be bytes of the request.
func badAttributeName(prefix string) *Error {
	return badRequest(attributesField(prefix), fmt.Sprintf("An attribute's name is not 1 to %d lower-case letters and digits; rename it.", maxAttributeNameBytes))
}

// packer copies the texts of an event into one string, so that they cost one allocation and outlive the body.
type packer struct {
	all string
}

// newPacker packs core and then, in order, each attribute's name and value.
func newPacker(core []*member, attributes []rawAttribute) packer {
	n := 0
	for _, m := range core {
		n += len(m.text)
	}
	for _, a := range attributes {
		n += len(a.name) + len(a.value)
	}
	var b strings.Builder
	b.Grow(n)
	for _, m := range core {
		b.Write(m.text)
	}
	for _, a := range attributes {
		b.Write(a.name)
		b.Write(a.value)
	}
	return packer{all: b.String()}
}

// take returns the next n packed bytes.
func (p *packer) take(n int) string {
	s := p.all[:n]
	p.all = p.all[n:]
	return s
}

// attributes returns the packed attributes sorted by name, without those that are null.
func (p *packer) attributes(raw []rawAttribute, prefix string) ([]Attribute, *Error) {
	if len(raw) == 0 {
		return nil, nil
	}
	list := make([]Attribute, len(raw))
	unset := 0
	for i, a := range raw {
		list[i] = Attribute{Name: p.take(len(a.name)), Value: p.take(len(a.value))}
		if a.null {
			unset++
		}
	}
	if err := sortAttributes(list, prefix); err != nil {
		return nil, err
	}
	if unset > 0 {
		// Names are unique now, so an attribute is null if the raw one of its name is.
		list = slices.DeleteFunc(list, func(a Attribute) bool {
			return slices.ContainsFunc(raw, func(r rawAttribute) bool { return r.null && string(r.name) == a.Name })
		})
	}
	return list, nil
}

// sortAttributes sorts by name and refuses too many, a name that comes twice, and a value that is too long or holds a
// control character.
func sortAttributes(list []Attribute, prefix string) *Error {
	if len(list) > maxAttributes {
		return tooManyAttributes(prefix)
	}
	slices.SortFunc(list, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	for i, a := range list {
		if i > 0 && list[i-1].Name == a.Name {
			return duplicate(prefix + a.Name)
		}
		if len(a.Value) > maxAttributeValueBytes {
			return tooLong(prefix+a.Name, maxAttributeValueBytes)
		}
		if hasControl(a.Value) {
			return badRequest(prefix+a.Name, "The value holds a control character; send it in the data instead.")
		}
	}
	return nil
}

// hasControl reports whether s holds a control character: U+0000 to U+001F or U+007F to U+009F, which CloudEvents 1.0
// keeps out of strings.
func hasControl(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == 0x7f {
			return true
		} else if c >= utf8.RuneSelf {
			return strings.ContainsFunc(s[i:], unicode.IsControl)
		}
	}
	return false
}

// checkIdentity bounds id, source and type; prefix is put before their names in errors. An empty source is the
// caller's to judge.
func (e *Event) checkIdentity(prefix string) *Error {
	if e.ID == "" {
		return empty(prefix + "id")
	}
	if len(e.ID) > maxIDBytes {
		return tooLong(prefix+"id", maxIDBytes)
	}
	if len(e.Source) > maxSourceBytes {
		return tooLong(prefix+"source", maxSourceBytes)
	}
	if err := ValidType(e.Type); err != nil {
		return badRequest(prefix+"type", sentence(err))
	}
	if Reserved(e.Type) {
		return badRequest(prefix+"type", "Types that begin with doorstep. are Doorstep's own; choose another prefix.")
	}
	return nil
}

// sentence words an error of ours as a sentence.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
