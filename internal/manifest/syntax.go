package manifest

import (
	"bytes"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// syntaxError is a document that can't be parsed.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

// wording is what is said in place of a parser's error. Parsers quote values, so
// none of their text is passed on: an error that is not in the list gets a sentence
// that fits them all.
type wording struct {
	// parser is how the error begins, after its line.
	parser string
	words  string
	// early is set for the errors that name the line before the one they mean:
	// those of the parser, not of the scanner (decode.go, fail).
	early bool
	// where finds the node it speaks of, for errors that name no line.
	where func(*yamlv3.Node) *yamlv3.Node
}

// wordings are those of go.yaml.in/yaml (decode.go, resolve.go, parserc.go,
// scannerc.go, readerc.go) and of sigs.k8s.io/yaml.
var wordings = []wording{
	{parser: "mapping values are not allowed", words: "a colon stands where no key can stand; put quotes around a value that holds a colon and a space, and check the indentation"},
	{parser: "did not find expected key", words: "a key was expected; check the indentation and the quotes here and in the line before", early: true},
	{parser: "could not find expected ':'", words: "a key has no colon; check this line and the one before"},
	{parser: "found character that cannot start any token", words: "a value or a line begins with a character that can't begin one (a tab, %, @ or `); indent with spaces, and put quotes around the value"},
	{parser: "found a tab character", words: "a tab stands in the indentation; use spaces"},
	{parser: "did not find expected ',' or ']'", words: "a list in [ ] is not closed, or a comma is missing", early: true},
	{parser: "did not find expected ',' or '}'", words: "a mapping in { } is not closed, or a comma is missing", early: true},
	{parser: "did not find expected '-' indicator", words: "a list item was expected; check the indentation", early: true},
	{parser: "block sequence entries are not allowed", words: "a list item can't stand here; begin the list in a line of its own"},
	{parser: "found unexpected end of stream", words: "a text in quotes is not closed before the document ends"},
	{parser: "found unexpected document indicator", words: "a text in quotes is not closed before the document ends"},
	{parser: "did not find expected node content", words: "a value was expected; check commas, brackets and quotes", early: true},
	{parser: "found unknown escape character", words: "a text in double quotes has a backslash that escapes nothing; use single quotes"},
	{parser: "found invalid Unicode character escape code", words: "a text in double quotes escapes a character that there is not"},
	{parser: "did not find expected hexdecimal number", words: "an escape in double quotes lacks digits; use single quotes for a text with backslashes"},
	{parser: "did not find expected alphabetic or numeric character", words: "an anchor or alias has no proper name; put quotes around a value that begins with & or *"},
	{parser: "did not find expected comment or line break", words: "nothing but a comment can follow | or >; begin the text in the next line"},
	{parser: "did not find expected whitespace", words: "a space is missing; put quotes around a value that begins with !"},
	{parser: "found undefined tag handle", words: "a value begins with a tag (!name) that is not known; put quotes around the value", early: true},
	{parser: "did not find expected tag URI", words: "a value begins with ! and is no tag; put quotes around it"},
	{parser: "did not find URI escaped octet", words: "a value begins with ! and is no tag; put quotes around it"},
	{parser: "did not find expected '!'", words: "a value begins with ! and is no tag; put quotes around it"},
	{parser: "did not find the expected '>'", words: "a value begins with ! and is no tag; put quotes around it"},
	{parser: "exceeded max depth", words: "it is nested too deep"},
	{parser: "control characters are not allowed", words: "a control character stands in the text; remove it, or escape it in double quotes"},
	{parser: "found incompatible YAML document", words: "the %YAML line names a version that is not read; remove the line", early: true},
	{parser: "document contains excessive aliasing", words: "its aliases (*name) multiply too much; write the values out"},
	{parser: "unknown anchor '", words: "an alias (*name) refers to no anchor (&name); put quotes around a value that begins with *"},
	{parser: "anchor '", words: "an alias (*name) stands within the value that it refers to; write the value out"},
	{parser: "!!binary value contains invalid base64 data", words: "a value with the tag !!binary is not base64; remove the tag", where: isTagged},
	{parser: "cannot decode ", words: "a value does not fit the tag (!!name) before it; remove the tag", where: isTagged},
	{parser: "map merge requires map or sequence of maps", words: "the key << takes an alias of a mapping; put quotes around it if it is a name", where: isBadMerge},
	{parser: "invalid map key", words: "a key is not a text but a mapping or a list; put quotes around a text that begins with { or [", where: isBadKey},
	{parser: "unsupported map key", words: "a key is empty or not a text; put quotes around it", where: isBadKey},
	{parser: "key ", words: "a key stands twice in a mapping; keep one of the two"},
	{parser: "json: unsupported value", words: "a number is infinite or none; put quotes around it if it is a text", where: beyondNumbers},
}

const otherSyntax = "it can't be read here; check the quotes, colons and indentation of this line and those around it"

// yamlLine is a line as a parser's error names it, at its beginning or in its list.
var yamlLine = regexp.MustCompile(`^(?:unmarshal errors:\n  )?line (\d+): ([^\n]*)`)

// syntaxError finds the line of a parser's error in the file and words it.
func (c chunk) syntaxError(d document, err error) *syntaxError {
	text := err.Error()
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		text = cause.Error()
	}
	text = strings.TrimPrefix(text, "yaml: ")
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line, text = n, m[2]
		}
	}
	words := wording{words: otherSyntax}
	for _, w := range wordings {
		if strings.HasPrefix(text, w.parser) {
			words = w
			break
		}
	}
	if words.early && line > 0 {
		line++
	}
	if line > 0 { // of the chunk; what ends too soon is told of the line after the last
		line = min(line+c.line-1, c.last())
	}
	switch {
	case line > 0:
	case words.where != nil:
		line = d.lineOf(words.where)
	default:
		line = c.find(text)
	}
	if !utf8.Valid(c.text) {
		words.words = "the text is not UTF-8; save it as UTF-8"
		line = c.unreadable()
	}
	return &syntaxError{line: line, message: "not valid YAML: " + words.words}
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '([^']*)' referenced`)

// find gives the line of an error that names none, by what it quotes or by the
// characters it is about.
func (c chunk) find(text string) int {
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		alias := regexp.MustCompile(`(^|[\s\[{,:])\*` + regexp.QuoteMeta(m[1]) + `($|[\s\]},:])`)
		if at := alias.FindIndex(c.text); at != nil {
			return c.line + bytes.Count(c.text[:at[1]-1], []byte("\n"))
		}
	}
	if strings.HasPrefix(text, "control characters") {
		return c.unreadable()
	}
	return c.firstContent()
}

// unreadable is the line of the first character that YAML does not take.
func (c chunk) unreadable() int {
	line := c.line
	for at := 0; at < len(c.text); {
		r, n := utf8.DecodeRune(c.text[at:])
		switch {
		case r == '\n':
			line++
		case r == '\t' || r == '\r' || r == 0x85:
		case r == utf8.RuneError && n == 1, r < 0x20, r >= 0x7f && r < 0xa0, r == 0xfffe, r == 0xffff:
			return line
		}
		at += n
	}
	return c.firstContent()
}

// isTagged finds a scalar that does not fit its own tag.
func isTagged(n *yamlv3.Node) *yamlv3.Node {
	if n.Kind != yamlv3.ScalarNode || n.Style&yamlv3.TaggedStyle == 0 {
		return nil
	}
	if _, err := yaml.YAMLToJSON([]byte("!<" + n.LongTag() + "> " + strconv.Quote(n.Value))); err != nil {
		return n
	}
	return nil
}

// isBadMerge finds a key << that has no mapping to merge.
func isBadMerge(n *yamlv3.Node) *yamlv3.Node {
	for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
		v := behind(n.Content[i+1])
		if n.Content[i].Value == "<<" && v.Kind == yamlv3.ScalarNode {
			return n.Content[i]
		}
	}
	return nil
}

// isBadKey finds a key that is not a text.
func isBadKey(n *yamlv3.Node) *yamlv3.Node {
	for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
		k := behind(n.Content[i])
		if k.Kind != yamlv3.ScalarNode || k.ShortTag() == "!!null" || k.ShortTag() == "!!timestamp" {
			return n.Content[i]
		}
	}
	return nil
}

// beyondNumbers finds a number that JSON or Go has no form for.
func beyondNumbers(n *yamlv3.Node) *yamlv3.Node {
	if n.Kind != yamlv3.ScalarNode || n.ShortTag() != "!!float" {
		return nil
	}
	f, err := strconv.ParseFloat(strings.Replace(strings.ToLower(n.Value), ".inf", "inf", 1), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return n
	}
	return nil
}
