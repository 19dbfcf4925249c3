package event

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanner reads RFC 8259 JSON in one pass: the strict grammar, with UTF-8 checked inside strings. It finds where values
// end and copies nothing. It is iterative, so depth costs one bit a level and never stack; why it is our own is told in
// docs/decisions. A method that returns false has set why and left pos at the byte at fault.
type scanner struct {
	buf []byte
	pos int
	why string
}

// What can be wrong, as it stands in "Not JSON at byte 7: …".
const (
	faultEnd       = "the text ends too early"
	faultValue     = "a value was expected"
	faultName      = "a member name in double quotes was expected"
	faultColon     = "a colon was expected"
	faultObjectEnd = "a comma or a closing brace was expected"
	faultArrayEnd  = "a comma or a closing bracket was expected"
	faultNumber    = "a number is malformed"
	faultEscape    = "a backslash escape is malformed"
	faultControl   = "a control character stands unescaped in a string"
	faultUTF8      = "a string is not UTF-8"
	faultTrailing  = "something follows the value"
)

func (s *scanner) fail(at int, why string) bool {
	s.pos, s.why = at, why
	if at >= len(s.buf) {
		s.why = faultEnd
	}
	return false
}

// peek returns the next byte, and 0 at the end: no JSON has a 0 outside a string.
func (s *scanner) peek() byte {
	if s.pos < len(s.buf) {
		return s.buf[s.pos]
	}
	return 0
}

// space skips blanks and returns the next byte as peek does.
func (s *scanner) space() byte {
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		s.pos++
	}
	return 0
}

// end reports whether nothing but blanks is left.
func (s *scanner) end() bool {
	s.space()
	if s.pos < len(s.buf) {
		return s.fail(s.pos, faultTrailing)
	}
	return true
}

// value skips one value of any kind, with blanks before it.
func (s *scanner) value() bool {
	var open levels
	for {
		switch c := s.space(); c {
		case '{':
			s.pos++
			if s.space() != '}' {
				open.push(true)
				if _, _, ok := s.name(); !ok {
					return false
				}
				continue
			}
			s.pos++
		case '[':
			s.pos++
			if s.space() != ']' {
				open.push(false)
				continue
			}
			s.pos++
		default:
			if !s.scalar(c) {
				return false
			}
		}
		done, ok := s.close(&open)
		if done || !ok {
			return ok
		}
	}
}

// close follows a value inside open: it leaves what ends here and stops before the next value. done says that nothing
// is open any more.
func (s *scanner) close(open *levels) (done, ok bool) {
	for open.depth > 0 {
		c := s.space()
		switch object := open.top(); {
		case c == ',':
			s.pos++
			if object {
				s.space()
				_, _, ok := s.name()
				return false, ok
			}
			return false, true
		case c == '}' && object, c == ']' && !object:
			s.pos++
			open.depth--
		case object:
			return false, s.fail(s.pos, faultObjectEnd)
		default:
			return false, s.fail(s.pos, faultArrayEnd)
		}
	}
	return true, true
}

// levels remembers for each open level whether it is an object, one bit each.
type levels struct {
	depth   int
	shallow [4]uint64 // the first 256 levels, so that nothing is allocated for them
	deep    []uint64
}

const shallowLevels = 256

// word returns the word that holds the bit of a level.
func (l *levels) word(level int) *uint64 {
	if level < shallowLevels {
		return &l.shallow[level>>6]
	}
	return &l.deep[(level-shallowLevels)>>6]
}

func (l *levels) push(object bool) {
	if at := l.depth - shallowLevels; at >= 0 && at>>6 == len(l.deep) {
		l.deep = append(l.deep, 0)
	}
	word, bit := l.word(l.depth), uint64(1)<<(l.depth&63)
	if object {
		*word |= bit
	} else {
		*word &^= bit
	}
	l.depth++
}

func (l *levels) top() bool {
	level := l.depth - 1
	return *l.word(level)>>(level&63)&1 == 1
}

// scalar skips a string, number, true, false or null that begins with c.
func (s *scanner) scalar(c byte) bool {
	switch c {
	case '"':
		_, _, ok := s.str()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	if c == '-' || c >= '0' && c <= '9' {
		return s.number()
	}
	return s.fail(s.pos, faultValue)
}

func (s *scanner) literal(word string) bool {
	for i := range len(word) {
		if s.pos+i >= len(s.buf) || s.buf[s.pos+i] != word[i] {
			return s.fail(s.pos+i, faultValue)
		}
	}
	s.pos += len(word)
	return true
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.digits()
	}
	return true
}

// digits skips at least one digit.
func (s *scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.buf) && s.buf[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > from || s.fail(s.pos, faultNumber)
}

// name reads a member's name and its colon; raw and escaped are as str gives them.
func (s *scanner) name() (raw []byte, escaped, ok bool) {
	if s.peek() != '"' {
		return nil, false, s.fail(s.pos, faultName)
	}
	raw, escaped, ok = s.str()
	if !ok {
		return nil, false, false
	}
	if s.space() != ':' {
		return nil, false, s.fail(s.pos, faultColon)
	}
	s.pos++
	return raw, escaped, true
}

// str reads a string whose opening quote is the next byte. raw is what stands between the quotes; escaped says that it
// holds backslash escapes, which are well-formed but not decoded.
func (s *scanner) str() (raw []byte, escaped, ok bool) {
	b, from := s.buf, s.pos+1
	for i := from; ; {
		if i+8 <= len(b) {
			special := notPlain(binary.LittleEndian.Uint64(b[i:]))
			if special == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(special) >> 3
		} else if i >= len(b) {
			return nil, false, s.fail(i, faultEnd)
		}
		switch c := b[i]; {
		case c == '"':
			s.pos = i + 1
			return b[from:i], escaped, true
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return nil, false, s.fail(i, faultEscape)
			}
			escaped = true
			i += n
		case c < ' ':
			return nil, false, s.fail(i, faultControl)
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				return nil, false, s.fail(i, faultUTF8)
			}
			i += size
		}
	}
}

// notPlain takes eight bytes of a string, the first in the low bits, and sets the high bit of each that is a quote, a
// backslash, a control character or not ASCII. Borrows may also flag bytes above such a one, so only the lowest flag is
// exact, and only it is used.
func notPlain(x uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return (x | (x - ones*' ') | (quote-ones)&^quote | (slash-ones)&^slash) & high
}

// escapeLen returns the length of the escape that begins b, and 0 if it is malformed.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}
