package status

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// maxSentence bounds what is shown of a message.
const maxSentence = 1024

// sentence begins with a capital and is not too long.
func sentence(s string) string {
	if len(s) > maxSentence {
		s = strings.ToValidUTF8(s[:maxSentence-3], "") + "..."
	}
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}
