package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Bounds of one document. Aliases count as what they stand for: a few kilobytes of
// text can otherwise mean gigabytes of values.
const (
	maxExpandedBytes = 8 << 20
	maxValues        = 300_000
)

// aliasLike finds what may be an alias (*name): it stands at the start of a value.
var aliasLike = regexp.MustCompile(`(?m)(^|[\s\[{,:])\*[^\s\[\]{},]`)

// tooMany refuses a document before a parser builds it, if its text can hold more
// values than are allowed. It counts the characters that begin values or lines.
func (c chunk) tooMany() *syntaxError {
	n := bytes.Count(c.text, []byte("- "))
	for _, b := range c.text {
		switch b {
		case ',', ':', '[', '{', '?', '\n':
			n++
		}
	}
	if n <= maxValues {
		return nil
	}
	return &syntaxError{line: c.firstContent(), message: fmt.Sprintf("the document may hold more than %d values, so it is not read; split it", maxValues)}
}

// jsonNode gives the nodes of a valid JSON text, which a YAML parser can't read in
// all cases.
func jsonNode(text []byte) *yamlv3.Node {
	p := jsonNodes{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1}
	p.dec.UseNumber()
	return p.next()
}

type jsonNodes struct {
	dec  *json.Decoder
	text []byte
	line int // of the byte at
	at   int64
}

func (p *jsonNodes) next() *yamlv3.Node {
	token, err := p.dec.Token()
	if err != nil {
		return &yamlv3.Node{Kind: yamlv3.ScalarNode, Tag: "!!null", Line: p.line}
	}
	end := p.dec.InputOffset()
	p.line, p.at = p.line+bytes.Count(p.text[p.at:end], []byte("\n")), end
	n := &yamlv3.Node{Kind: yamlv3.ScalarNode, Line: p.line}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = yamlv3.SequenceNode
		if v == '{' {
			n.Kind = yamlv3.MappingNode
		}
		for p.dec.More() {
			n.Content = append(n.Content, p.next())
		}
		_, _ = p.dec.Token() // the closing bracket
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yamlv3.DoubleQuotedStyle
	default:
		n.Tag = "!!null"
	}
	return n
}

// checkNodes refuses what must not reach the conversion: aliases that multiply
// beyond the bounds or contain themselves.
func (d document) checkNodes() *syntaxError {
	m := measure{size: map[*yamlv3.Node]extent{}}
	if message := m.walk(d.node); message != "" {
		return &syntaxError{line: d.fileLine(m.line), message: message}
	}
	return nil
}

// extent is what a node stands for once its aliases are written out.
type extent struct{ bytes, values int }

// measure sums up a document, each alias as large as what it refers to.
type measure struct {
	size  map[*yamlv3.Node]extent // of the nodes with an anchor that are complete
	total extent
	line  int // of the node that was looked at last
}

// walk gives the reason to refuse the document, or "".
func (m *measure) walk(n *yamlv3.Node) string {
	m.line = n.Line
	before := m.total
	m.total.values++
	if n.Kind == yamlv3.AliasNode {
		size, complete := m.size[n.Alias]
		if !complete {
			return "not valid YAML: an alias (*name) stands within the value that it refers to; write the value out"
		}
		m.total.bytes += size.bytes
		m.total.values += size.values
	} else {
		m.total.bytes += len(n.Value)
	}
	switch {
	case m.total.bytes > maxExpandedBytes:
		return fmt.Sprintf("its aliases (*name) expand to more than %d MiB; write the values out", maxExpandedBytes>>20)
	case m.total.values > maxValues:
		return fmt.Sprintf("it holds more than %d values once its aliases (*name) are written out; split it", maxValues)
	}
	for _, child := range n.Content {
		if message := m.walk(child); message != "" {
			return message
		}
	}
	if n.Anchor != "" {
		m.size[n] = extent{m.total.bytes - before.bytes, m.total.values - before.values}
	}
	return ""
}

// duplicate is a key that stands twice in a mapping.
type duplicate struct {
	line  int
	field string
}

// duplicates finds every key that a mapping holds twice, such as yes and true,
// which are one key: a parser would silently take the last one.
func (d document) duplicates(keys keyResolver) []duplicate {
	var out []duplicate
	var walk func(n *yamlv3.Node, path string)
	walk = func(n *yamlv3.Node, path string) {
		switch n.Kind {
		case yamlv3.MappingNode:
			seen := make(map[string]bool, len(n.Content)/2)
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				name := keys.resolve(k)
				field := strings.TrimPrefix(path+"."+name, ".")
				if seen[name] {
					out = append(out, duplicate{line: d.fileLine(k.Line), field: field})
				}
				seen[name] = true
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

// behind is what an alias refers to; any other node is itself.
func behind(n *yamlv3.Node) *yamlv3.Node {
	if n.Kind == yamlv3.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// keyResolver gives the keys that YAML's keys become, by the library that converts
// the documents; it remembers those of one file.
type keyResolver map[string]string

func (r keyResolver) resolve(n *yamlv3.Node) string {
	n = behind(n)
	const quoted = yamlv3.DoubleQuotedStyle | yamlv3.SingleQuotedStyle | yamlv3.LiteralStyle | yamlv3.FoldedStyle
	text := n.Value
	switch {
	case n.Kind != yamlv3.ScalarNode: // refused by the conversion
		return n.Value
	case n.Style&yamlv3.TaggedStyle != 0:
		text = "!<" + n.LongTag() + "> " + strconv.Quote(n.Value)
	case n.Style&quoted != 0 || n.Value == "<<" || !perhapsNoText(n.Value):
		return n.Value
	}
	name, known := r[text]
	if !known {
		name = n.Value
		if b, err := yaml.YAMLToJSON([]byte(text + ": 0\n")); err == nil {
			var one map[string]int
			if json.Unmarshal(b, &one) == nil {
				for name = range one { // there is one
				}
			}
		}
		r[text] = name
	}
	return name
}

// perhapsNoText reports whether a plain scalar may become another key than it is
// written: a boolean, null or a number, but for whole numbers that are plain.
func perhapsNoText(s string) bool {
	switch {
	case s == "":
		return true
	case strings.ContainsAny(s, " \t\n"):
		return false
	case strings.ContainsAny(s[:1], "yYnNtTfFoO~"):
		return len(s) <= len("false")
	case s[0] >= '1' && s[0] <= '9':
		return len(s) > 18 || strings.Trim(s, "0123456789") != ""
	}
	return strings.ContainsAny(s[:1], "0+-.")
}

// fileLine makes a node's line one of the file.
func (d document) fileLine(line int) int { return min(line+d.offset, d.last) }

// lineOf is the line of the first node that find finds, node by node; without one,
// it is the document's.
func (d document) lineOf(find func(*yamlv3.Node) *yamlv3.Node) int {
	var walk func(n *yamlv3.Node) int
	walk = func(n *yamlv3.Node) int {
		if found := find(n); found != nil {
			return d.fileLine(found.Line)
		}
		for _, child := range n.Content {
			if line := walk(child); line > 0 {
				return line
			}
		}
		return 0
	}
	if d.node != nil {
		if line := walk(d.node); line > 0 {
			return line
		}
	}
	return d.line
}

// at returns the line of a field, or of the nearest thing around it that exists.
func (d document) at(field string) int {
	line := d.line
	n := d.nodes()
	if n == nil {
		return line
	}
	for _, step := range splitPath(field) {
		n = behind(n)
		key, value := child(n, step)
		if value == nil {
			return line
		}
		line, n = d.fileLine(key.Line), value
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
		n = behind(n)
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
