package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// reservedPrefix begins the types of Doorstep's own operational events.
const reservedPrefix = "doorstep."

// Reserved reports whether a type is one of Doorstep's own, which nobody may send from outside.
func Reserved(typ string) bool { return strings.HasPrefix(typ, reservedPrefix) }

// ValidType returns nil for a type an event may have: 1 to 256 bytes of printable UTF-8. It does not ask who sends it:
// see Reserved.
func ValidType(typ string) error {
	if typ == "" {
		return errors.New("the type is empty; send one such as order.created")
	}
	if len(typ) > maxTypeBytes {
		return fmt.Errorf("the type is longer than %d bytes; send a shorter one", maxTypeBytes)
	}
	for i := 0; i < len(typ); {
		if c := typ[i]; c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return errNotPrintable
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(typ[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			return errNotPrintable
		}
		i += size
	}
	return nil
}

var errNotPrintable = errors.New("the type holds a character that is not printable; use letters, digits and dots")

// ValidPattern returns nil for a pattern that MatchType takes: a type without '*', such a type followed by ".*", or "*".
func ValidPattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	typ := strings.TrimSuffix(pattern, ".*")
	if strings.Contains(typ, "*") || typ == "" && pattern != "" {
		return errors.New(`"*" may stand alone or be the last segment, as in "order.*"; name the type exactly otherwise`)
	}
	return ValidType(typ)
}

// MatchType reports whether an event's type matches a pattern: exactly; "a.*" for one or more segments after "a."; or
// "*" for every type but Doorstep's own, which are delivered only where a pattern names them ("doorstep.*" does).
func MatchType(pattern, typ string) bool {
	if pattern == "*" {
		return !Reserved(typ)
	}
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	if wildcard && strings.HasSuffix(prefix, ".") {
		return len(typ) > len(prefix) && strings.HasPrefix(typ, prefix)
	}
	return pattern == typ
}
