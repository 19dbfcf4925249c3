package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// document is one YAML or JSON document. Its value is what kubectl would send
// (sigs.k8s.io/yaml, so YAML 1.1 booleans and all); its node only gives lines.
type document struct {
	value any
	node  *yamlv3.Node // nil where the lines are not known
	line  int          // of the document's first content
	// offset is added to the node's lines.
	offset int
}

// chunk is the text of one document within a file.
type chunk struct {
	text []byte
	line int // of its first line
}

// splitDocuments cuts a file at its document markers, so that a document that
// can't be parsed takes none of the others with it. A marker at the start of a
// line ends a document whatever stands around it (YAML 1.2.2, §9.1.2). What comes
// before the first marker without being content stays with the first document.
func splitDocuments(file []byte) []chunk {
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	var out []chunk
	start, startLine, content := 0, 1, false
	cut := func(end, nextLine int) {
		if content {
			out = append(out, chunk{text: file[start:end], line: startLine})
		}
		start, startLine, content = end, nextLine, false
	}
	line := 1
	for at := 0; at < len(file); line++ {
		end := at + bytes.IndexByte(file[at:], '\n') + 1
		if end == at {
			end = len(file)
		}
		text := bytes.TrimRight(file[at:end], "\r\n")
		switch {
		case isMarker(text, "---"):
			cut(at, line)
			content = hasContent(text[3:])
		case isMarker(text, "..."):
			cut(end, line+1)
		case hasContent(text) && text[0] != '%':
			content = true
		}
		at = end
	}
	cut(len(file), line)
	return out
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

// hasContent reports whether a line holds more than white space and a comment.
func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// syntaxError is a document that can't be parsed.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

// surrogate is half of a character as JSON may escape it and YAML does not know it.
// What stands in its place in the nodes is of no account.
var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// parse reads one document.
func (c chunk) parse() (document, *syntaxError) {
	d := document{line: c.firstContent(), offset: c.line - 1}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(surrogate.ReplaceAll(c.text, []byte(`\uFFFD`)), &root); err == nil && len(root.Content) > 0 {
		d.node = root.Content[0]
	}
	text := c.text
	if !json.Valid(text) {
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			return d, c.syntaxError(err)
		}
		text = converted
	}
	if err := utiljson.Unmarshal(text, &d.value); err != nil {
		return d, &syntaxError{line: d.line, message: "the document holds a value that JSON has no form for"}
	}
	return d, nil
}

func (c chunk) firstContent() int {
	line := c.line
	for text := range bytes.Lines(c.text) {
		trimmed := bytes.TrimRight(text, "\r\n")
		if isMarker(trimmed, "---") {
			trimmed = trimmed[3:]
		}
		if hasContent(trimmed) && trimmed[0] != '%' {
			return line
		}
		line++
	}
	return c.line
}

var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

// syntaxError finds the line in a YAML error and makes it one of the file. What
// the parser says never quotes values, only what it expected and names of anchors.
func (c chunk) syntaxError(err error) *syntaxError {
	line, message := c.firstContent(), err.Error()
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		message = cause.Error()
	}
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			// "Unexpected end" is told of the line after the last.
			last := c.line + bytes.Count(bytes.TrimRight(c.text, "\r\n"), []byte("\n"))
			line, message = min(n+c.line-1, last), m[2]
		}
	}
	message = strings.TrimPrefix(strings.TrimPrefix(message, "error converting YAML to JSON: "), "yaml: ")
	return &syntaxError{line: line, message: "not valid YAML: " + message}
}

// duplicate is a key that stands twice in a mapping.
type duplicate struct {
	line  int
	field string
}

// duplicates finds every key that a mapping holds twice: a parser would silently
// take the last one.
func (d document) duplicates() []duplicate {
	var out []duplicate
	var walk func(n *yamlv3.Node, path string)
	walk = func(n *yamlv3.Node, path string) {
		switch n.Kind {
		case yamlv3.MappingNode:
			seen := make(map[string]bool, len(n.Content)/2)
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				field := strings.TrimPrefix(path+"."+k.Value, ".")
				if k.Kind == yamlv3.ScalarNode && seen[k.Value] {
					out = append(out, duplicate{line: k.Line + d.offset, field: field})
				}
				seen[k.Value] = true
				walk(n.Content[i+1], field)
			}
		case yamlv3.SequenceNode:
			for i, item := range n.Content {
				walk(item, fmt.Sprintf("%s[%d]", path, i))
			}
		}
	}
	if d.node != nil {
		walk(d.node, "")
	}
	return out
}

// at returns the line of a field, or of the nearest thing around it that exists.
func (d document) at(field string) int {
	line := d.line
	if d.node == nil {
		return line
	}
	n := d.node
	for _, step := range splitPath(field) {
		if n.Kind == yamlv3.AliasNode && n.Alias != nil {
			n = n.Alias
		}
		key, value := child(n, step)
		if value == nil {
			return line
		}
		line, n = key.Line+d.offset, value
	}
	return line
}

// has reports whether the document holds the field.
func (d document) has(field string) bool {
	if d.node == nil {
		return false
	}
	n := d.node
	for _, step := range splitPath(field) {
		if n.Kind == yamlv3.AliasNode && n.Alias != nil {
			n = n.Alias
		}
		if _, n = child(n, step); n == nil {
			return false
		}
	}
	return true
}

// child finds an entry of a mapping or an item of a sequence. The first node
// returned is where it begins: a mapping's key, a sequence's item.
func child(n *yamlv3.Node, step string) (key, value *yamlv3.Node) {
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}

// splitPath cuts spec.keys[0].name and metadata.labels[a.b/c] into their steps.
func splitPath(field string) []string {
	var out []string
	for field != "" {
		switch {
		case field[0] == '.':
			field = field[1:]
		case field[0] == '[':
			inner, rest, _ := strings.Cut(field[1:], "]")
			out, field = append(out, inner), rest
		default:
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			out, field = append(out, field[:end]), field[end:]
		}
	}
	return out
}
